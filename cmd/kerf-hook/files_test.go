// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

// TestProgramOpensNothingOfTheBundle runs the program as an OCI runtime does, in the bundle's folder, with an
// image that holds a link or a file wherever a careless program might look, and watches every folder of it.
func TestProgramOpensNothingOfTheBundle(t *testing.T) {
	bin, socket, bundle := build(t), agent(t, wire.Response{OK: true}), t.TempDir()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	for _, dir := range []string{"rootfs/etc", "rootfs/proc/self", "rootfs/sys", "rootfs/dev", "rootfs/usr/lib",
		"rootfs/run/kerf"} {
		if err := os.MkdirAll(filepath.Join(bundle, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string]string{"config.json": "{}", "rootfs/etc/ld.so.preload": "/poc.so",
		"rootfs/etc/resolv.conf": "", "poc.so": "x", "rootfs/proc/self/cgroup": "0::/"} {
		if err := os.WriteFile(filepath.Join(bundle, name), []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(socket, filepath.Join(bundle, "rootfs/run/kerf/hook.sock")); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(bundle, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			_, err = unix.InotifyAddWatch(watch, path, unix.IN_OPEN|unix.IN_ACCESS|unix.IN_MODIFY|unix.IN_CREATE)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	events := func() int {
		n, _ := unix.Read(watch, make([]byte, 1<<16))
		return max(n, 0)
	}
	events() // the walk opened folders after it watched them
	cmd := exec.CommandContext(t.Context(), bin, "activate", "--socket", socket)
	cmd.Dir, cmd.Stdin = bundle, strings.NewReader(`{"id":"c","status":"creating","pid":7,"bundle":"`+bundle+
		`","annotations":{"socket":"rootfs/run/kerf/hook.sock"}}`)
	cmd.Env = []string{"LD_PRELOAD=" + bundle + "/poc.so", "LD_LIBRARY_PATH=" + bundle, "GODEBUG=netdns=cgo",
		"GOTRACEBACK=crash"}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	if events() > 0 {
		t.Error("the program opened something in the bundle")
	}
	// The watch does see what it is there for.
	if _, err := os.ReadFile(filepath.Join(bundle, "rootfs/etc/ld.so.preload")); err != nil || events() == 0 {
		t.Errorf("the watch sees nothing (%v)", err)
	}
}
