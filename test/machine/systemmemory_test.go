// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A GPU that uses the system's memory is healthy. Its memory is unknown. It is granted whole, also across a restart of
// the agent, and every other request is rejected with the cause and the remedy.
func TestSystemMemory(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "gb10", driver: driver, noAgent: true})
			m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools: [{name: default, " +
				"backends: [driver, mps, libkerf, reactive]}]\n" +
				"  profiles: [{name: burst, memory: 1GiB, maxBurstMemory: 2GiB}]\n")}
			m.startAgent()
			m.ready()
			m.wantUnknownMemory()
			for _, request := range []string{"--memory 1GiB", "--percent 25", "--memory 1GiB --percent 25",
				"--profile burst", "--memory 1GiB --min-enforcement none"} {
				if said := m.refused(flags(request)); !strings.Contains(flat(said), sharing.NoShares) {
					t.Errorf("%s: %s", request, said)
				}
			}
			whole := m.run(flags("--gpus 1 --name whole"), load("--alloc 10GiB --hold 1h"))
			whole.granted()
			wantLoad(t, whole.loads(1)[0], "", 9*gib, 1<<63)
			if said := m.refused(flags("--gpus 1")); !strings.Contains(said, "is in use") {
				t.Errorf("a second whole GPU: %s", said)
			}
			before := held(m.state())
			m.restartAgent()
			m.ready()
			m.wantSame(before, []*run{whole})
			m.wantUnknownMemory()
			if g, ok := m.state().grant("whole"); !ok || g.Level != "exclusive" || g.Used == nil || *g.Used < 10*gib {
				t.Errorf("grant %+v", g)
			}
			whole.end()
			m.noGrants()
		})
	}
}

// wantUnknownMemory checks what status reports of the one GPU.
func (m *machine) wantUnknownMemory() {
	m.t.Helper()
	s := m.state()
	if len(s.GPUs) != 1 || s.GPUs[0].Health != "healthy" || s.GPUs[0].Memory != 0 || s.GPUs[0].Used != nil ||
		!slices.Equal(s.GPUs[0].Levels, []string{"exclusive"}) || len(s.Warnings) > 0 {
		m.t.Errorf("GPUs %+v, warnings %q", s.GPUs, s.Warnings)
	}
	json := m.kerf("status", "-o", "json").out
	for _, field := range []string{"capacityBytes", "reservedBytes", "grantedBytes", "usedBytes"} {
		if !strings.Contains(json, `"`+field+`": null`) {
			m.t.Errorf("status has an amount of %s: %s", field, json)
		}
	}
	table := strings.Fields(strings.Split(m.kerf("status").out, "GPU  HEALTH")[1])
	if i := slices.Index(table, "healthy"); i < 0 || !slices.Equal(table[i:i+4], []string{"healthy", "-", "-", "-"}) {
		m.t.Errorf("the table has %q", table)
	}
}
