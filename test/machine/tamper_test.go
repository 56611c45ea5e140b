// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"testing"
)

// tampered is one line of gpuload --tamper.
type tampered struct {
	Call   string `json:"call"`
	Result *int   `json:"result"`
}

// modes are what all on a GPU live with.
type modes struct {
	MIG         bool   `json:"mig"`
	ComputeMode uint64 `json:"compute_mode"`
	PowerLimit  uint64 `json:"power_limit_mw"`
}

// Root that lacks CAP_SYS_ADMIN, as in a container, changes neither its own cap nor what all on the GPU live with; who
// has it changes everything, which is why no container with a grant may have it.
func TestTamper(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "h100x8", driver: "r615"})
	neighbour := m.run(flags("--memory 4GiB --gpu-uuid "+m.uuid(0)), load("--alloc 3GiB --hold 1h"))
	neighbour.loads(1)
	before := m.gpusim("gpus", "-o", "json").out

	const noPermission = 4 // NVML_ERROR_NO_PERMISSION
	script := "setpriv --bounding-set=-sys_admin " + program("gpuload") + " --tamper; exec " + program("gpuload") +
		" --json --alloc 3GiB --hold 1h"
	r := m.run(flags("--memory 2GiB --name tamperer --gpu-uuid "+m.uuid(0)), []string{"sh", "-c", script})
	lines := r.lines(5)
	for i, call := range []string{"power limit", "compute mode", "memory limit", "MIG mode"} {
		if got := decode[tampered](t, lines[i]); got.Call != call || got.Result == nil || *got.Result != noPermission {
			t.Errorf("%s, want %s refused with %d", lines[i], call, noPermission)
		}
	}
	wantLoad(t, decode[loaded](t, lines[4]), oom, 0, 2*gib)
	for _, l := range m.limits() {
		if l.Cgroup == m.grant("tamperer").Cgroup && l.GPU == m.uuid(0) && (l.Hard == nil || *l.Hard != 2*gib) {
			t.Errorf("its limit is %+v, want 2 GiB", l)
		}
	}
	r.end()
	neighbour.end()
	m.noGrants()
	if after := m.gpusim("gpus", "-o", "json").out; decode[[]modes](t, after)[0] != decode[[]modes](t, before)[0] {
		t.Errorf("GPUs before %s, after %s", before, after)
	}

	mine := m.run(flags("--memory 2GiB --gpu-uuid "+m.uuid(1)), []string{program("gpuload"), "--tamper"})
	for _, line := range mine.lines(3) {
		if got := decode[tampered](t, line); got.Result == nil || *got.Result != 0 {
			t.Errorf("%s, want it done: by an administrator", line)
		}
	}
	mine.wait()
	m.noGrants()
}
