// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

func ownMounts() error { return mountns.Mask(nil) }

// The thread that has other mounts is never the one that /proc/self tells of.
func TestThreadsOfTheirOwn(t *testing.T) {
	if err := mountns.OnThread(ownMounts); errors.Is(err, sharing.ErrDenied) {
		t.Skip(err)
	}
	before, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 * runtime.NumCPU() {
		if err := mountns.OnThread(ownMounts); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/proc/self/ns/mnt", "/proc/thread-self/ns/mnt"} {
		if now, err := os.Readlink(path); err != nil || now != before {
			t.Errorf("%s is %s (%v), %s before", path, now, err, before)
		}
	}
}

func TestKernelThread(t *testing.T) {
	if mountns.KernelThread(os.Getpid()) {
		t.Error("this process is taken for a kernel thread")
	}
	comm, err := os.ReadFile("/proc/2/comm")
	if err == nil && string(comm) == "kthreadd\n" && !mountns.KernelThread(2) {
		t.Error("kthreadd is not recognized")
	}
}
