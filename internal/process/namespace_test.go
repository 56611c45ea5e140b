// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestInnermostPID(t *testing.T) {
	if pid, err := InnermostPID(os.Getpid()); err != nil || pid != os.Getpid() {
		t.Errorf("%d %v, want %d", pid, err, os.Getpid())
	}
	if _, err := InnermostPID(1 << 30); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no process: %v", err)
	}
	for text, want := range map[string]int{
		"Name:\ta\nPid:\t70\nNSpid:\t70\t12\t3\n": 3, "Name:\tNSpid: 9\nPid:\t70\nNSpid:\t70\n": 70, "Pid:\t70\n": 70,
		"": 0, "NSpid:\t\n": 0, "NSpid:\t7\t-1\n": 0, "NSpid:\tx\n": 0,
	} {
		if got, err := parseInnermost(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
}

func TestPIDSpace(t *testing.T) {
	own, err := PIDSpace(os.Getpid())
	if text, linked := os.Readlink("/proc/self/ns/pid"); err != nil || linked != nil ||
		text != fmt.Sprintf("pid:[%d]", own) {
		t.Errorf("%d %v, /proc says %q %v", own, err, text, linked)
	}
	if _, err := PIDSpace(1 << 30); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no process: %v", err)
	}
}

// The effective capabilities decide what a process may do.
func TestCapabilities(t *testing.T) {
	for name, may := range map[string]func(pid int) (bool, error){"mount": MayMount, "override": MayOverride} {
		if got, err := may(os.Getpid()); err != nil || os.Geteuid() != 0 && got {
			t.Errorf("%s: %v %v", name, got, err)
		}
		if _, err := may(1 << 30); !errors.Is(err, sharing.ErrNotFound) {
			t.Errorf("%s of no process: %v", name, err)
		}
	}
	if may, err := MayMount(os.Getpid()); !may || err != nil {
		t.Skip("capabilities can be given by root alone:", sharing.ErrDenied)
	}
	cmd := exec.CommandContext(t.Context(), "cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	mount, err1 := MayMount(cmd.Process.Pid)
	override, err2 := MayOverride(cmd.Process.Pid)
	if err := errors.Join(err1, err2); err != nil || !mount || override {
		t.Errorf("with CAP_SYS_ADMIN alone: mount %v, override %v, %v", mount, override, err)
	}
}
