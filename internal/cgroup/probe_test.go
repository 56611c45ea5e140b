// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestProbe(t *testing.T) {
	h, base := scratch(t)
	if err := h.Probe(base + "/probe"); err != nil {
		t.Errorf("a hierarchy in use: %v", err)
	}
	if names, err := h.Children(base); err != nil || len(names) != 0 {
		t.Errorf("left behind: %q, %v", names, err)
	}
	if err := h.Probe(base); !errors.Is(err, sharing.ErrConflict) || h.Remedy(err) != "" {
		t.Errorf("a group that exists: %v, %q", err, h.Remedy(err))
	}
	if err := (Hierarchy{Mount: t.TempDir()}).Probe("x"); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("no hierarchy: %v", err)
	}
}

// readOnly makes this test binary run in a mount namespace with a read-only hierarchy.
const readOnly = "KERF_TEST_READ_ONLY"

// A read-only mount can be read like any other. Only making a group tells.
func TestProbeReadOnly(t *testing.T) {
	if os.Getenv(readOnly) != "" {
		h, err := Default()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Controllers(); err != nil {
			t.Errorf("read: %v", err)
		}
		err = h.Probe("kerf-test-read-only")
		if !errors.Is(err, unix.EROFS) || !strings.Contains(h.Remedy(err), "remount,bind,rw "+h.Mount) {
			t.Errorf("probe: %v, remedy %q", err, h.Remedy(err))
		}
		return
	}
	h, _ := scratch(t)
	c := exec.Command("sh", "-c", `mount -o remount,bind,ro "$0" && exec "$@"`, h.Mount, os.Args[0],
		"-test.run=^TestProbeReadOnly$", "-test.v")
	c.Env = append(os.Environ(), readOnly+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("in its own mount namespace: %v\n%s", err, out)
	}
}
