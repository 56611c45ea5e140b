// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"testing"

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
	if text, linked := os.Readlink("/proc/self/ns/pid"); err != nil || linked != nil || text != fmt.Sprintf("pid:[%d]", own) {
		t.Errorf("%d %v, /proc says %q %v", own, err, text, linked)
	}
	if _, err := PIDSpace(1 << 30); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no process: %v", err)
	}
}

func TestMayMount(t *testing.T) {
	may, err := MayMount(os.Getpid())
	if err != nil || os.Geteuid() != 0 && may {
		t.Errorf("%v %v", may, err)
	}
	if _, err := MayMount(1 << 30); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no process: %v", err)
	}
}
