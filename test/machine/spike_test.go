// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSpikeBetweenSamples has a program allocate more than its cap and return it before the agent looks again. A
// backend that rejects allocations rejects this one, with no agent at all. Level reactive misses it, as
// docs/reference/bypasses.md says.
func TestSpikeBetweenSamples(t *testing.T) {
	t.Parallel()
	const spike = 6 * gib
	for level, tt := range map[string]struct {
		make    func(t *testing.T) *machine
		context uint64
		err     string
		holds   uint64
	}{
		"driver":    {func(t *testing.T) *machine { return newMachine(t, setup{}) }, contextH100, oom, 0},
		"userspace": {func(t *testing.T) *machine { return newPreloading(t, ", onOverCap: kill") }, contextT4, oom, 0},
		"reactive":  {func(t *testing.T) *machine { return newWatched(t, ", onOverCap: kill") }, contextT4, "", spike},
	} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			m := tt.make(t)
			gate := filepath.Join(m.work, "gate")
			script := "echo waits; until [ -e " + gate + " ]; do sleep 0.02; done; " + program("gpuload") +
				" --json --alloc 6GiB; echo returned; until [ -e " + gate + "2 ]; do sleep 0.02; done"
			r := m.run(flags("--memory 4GiB --name spike"), []string{"sh", "-c", script})
			r.lines(1)
			m.set("gpu=all", "peak=now")
			m.agent.signal(syscall.SIGSTOP)
			touch(t, gate)
			wantLoad(t, decode[loaded](t, r.lines(3)[1]), tt.err, tt.holds, tt.holds)
			if peak := m.memory().peak; peak != tt.holds+tt.context {
				t.Errorf("at most %d bytes were held at a moment, want %d", peak, tt.holds+tt.context)
			}
			m.agent.signal(syscall.SIGCONT)
			if level != "driver" { // which samples no shares
				m.looks(3)
			}
			if g := m.grant("spike"); !r.running() || g.Level != level || g.Used == nil || *g.Used != 0 {
				t.Errorf("afterwards: running %v, %+v", r.running(), g)
			}
			if metrics := m.metrics(); strings.Contains(metrics,
				`kerf_reactive_kills_total{reason="over_cap"} 1`) {
				t.Error("a process was killed")
			}
			touch(t, gate+"2")
			if end := r.wait(); end.code != 0 {
				t.Errorf("%v", end)
			}
			checkInvariants(t, m)
		})
	}
}
