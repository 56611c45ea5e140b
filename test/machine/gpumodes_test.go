// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"syscall"
	"testing"
)

// simModes is the part of gpusim's list of GPUs that tells their modes.
type simModes struct {
	TimeSlice   string `json:"time_slice"`
	ComputeMode int    `json:"compute_mode"`
}

// wantModes waits until all the GPUs have these.
func (m *machine) wantModes(slice string, mode int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("time slice %s and compute mode %d", slice, mode), func() error {
		r := m.gpusim("gpus", "-o", "json")
		for i, g := range decode[[]simModes](m.t, r.out) {
			if g.TimeSlice != slice || g.ComputeMode != mode {
				return fmt.Errorf("gpu %d has %+v", i, g)
			}
		}
		return nil
	})
}

// A pool's time slice and compute mode are set on the GPUs, change with the document, outlive a crash of the agent,
// and are put back at its end.
func TestGPUModes(t *testing.T) {
	t.Parallel()
	pool := func(fields string) string {
		return head + "spec:\n  pools: [{name: default, mode: whole" + fields + "}]\n"
	}
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(pool(", timeSlice: short, computeMode: exclusiveProcess"))}
	m.startAgent()
	m.ready()
	m.wantModes("Short", 3)
	m.write(pool(", timeSlice: long"))
	m.wantModes("Long", 0)
	m.killAgent()
	m.write(pool(""))
	m.wantModes("Long", 0) // nobody was there to put it back
	m.startAgent()
	m.ready()
	m.wantModes("Default", 0)
	m.write(pool(", timeSlice: medium, computeMode: exclusiveProcess"))
	m.wantModes("Medium", 3)
	m.agent.signal(syscall.SIGTERM)
	<-m.agent.exited
	m.wantModes("Default", 0)
	m.startAgent()
	m.ready()
	m.wantModes("Medium", 3)
}
