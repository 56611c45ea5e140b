// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"strings"
	"testing"
)

// Of a GPU that uses the machine's memory, NVML and DCGM report no amount and take no limit. Its processes are listed
// with their memory.
func TestDaemonSystemMemory(t *testing.T) {
	dir := node(t, "gb10", "r615")
	cmd := hold(t, dir)
	const context = 480 << 20
	got := nvml(t, dir, "init", "memory,0", "bar1,0", "set,0,/kerf/a,0,1024", "processes,0,9")
	want := []string{
		success, notSupported + " total=0 reserved=0 free=0 used=0 v1used=0", notSupported + " 0",
		notSupported + " soft=0 hard=1024 used=0", fmt.Sprintf("0 1 %d:%d", cmd.Process.Pid, context+1<<30),
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("answer %d is %q, want %q", i, got[i], want[i])
		}
	}
	r := program(t, dir, nil, "check/dcgmcheck")
	if !strings.Contains(r.out, "NVIDIA GB10") || !strings.Contains(r.out, " total=2147483634 ") ||
		!strings.Contains(r.out, " used=9223372036854775794 ") { // DCGM_INT32_NOT_SUPPORTED, and that of 64 bits
		t.Errorf("DCGM reports %q", r.out)
	}
}
