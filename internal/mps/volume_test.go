// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// newVolume is a folder with a volume, which the test takes away again.
func newVolume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := UnmountVolume(dir); err != nil {
			t.Error(err)
		}
	})
	if err := MountVolume(dir); errors.Is(err, sharing.ErrDenied) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}

// What is in a volume stays when it is wanted again, and is gone, for who has it mounted elsewhere too, when it is
// taken away.
func TestVolume(t *testing.T) {
	dir, elsewhere := newVolume(t), t.TempDir()
	file := filepath.Join(dir, "shm", "f")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("x"), 0o600),
		MountVolume(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("after it was wanted again: %v", err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(filepath.Join(dir, "link")); !errors.Is(err, unix.ELOOP) {
		_ = f.Close()
		t.Errorf("a symbolic link of a client's: %v", err)
	}
	if err := unix.Mount(dir, elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(elsewhere, 0) }()
	for range 2 {
		if err := UnmountVolume(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, elsewhere} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", d, left, err)
		}
	}
	if err := UnmountVolume(filepath.Join(dir, "none")); err != nil {
		t.Errorf("where there is none: %v", err)
	}
	if err := MountVolume(filepath.Join(dir, "none")); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("where there is no folder: %v", err)
	}
}

// A daemon and its servers have the folder as /dev/shm, and nothing else has.
func TestDaemonSeesItsSharedMemory(t *testing.T) {
	d := onNode(t)
	d.Shm = filepath.Join(newVolume(t), "shm")
	if err := os.Mkdir(d.Shm, 0o777); err != nil {
		t.Fatal(err)
	}
	d = d.started(t)
	if err := d.StartServer(t.Context(), uint32(os.Getuid())); err != nil { // #nosec G115 -- none is negative
		t.Fatal(err)
	}
	found, err := Running(filepath.Dir(d.Pipe))
	if err != nil || len(found) != 2 {
		t.Fatalf("running: %+v, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(d.Shm, "mark"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s/mark", p.PID, SharedMemory)); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := os.Stat(SharedMemory + "/mark"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in this program's: %v", err)
	}
}
