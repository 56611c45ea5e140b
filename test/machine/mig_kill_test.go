// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The whole agent is killed before and after each call to the driver and each write of the journal of a change, from one
// layout to another and back, until there is no such moment left: it ends at the layout, with nothing left over, and who
// runs on the GPU stays where it is. The soak takes each moment, and this test every few.
func TestMIGKilledAtEachMoment(t *testing.T) {
	t.Parallel()
	step := 13
	if soakFor > 0 {
		step = 1
	}
	for _, point := range []string{"mig-driver", "mig-journal"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "a30x2", driver: "r580", noAgent: true})
			pool := func(instances string) string {
				return layoutPool("    - {gpus: [0], enabled: true, instances: {" + instances + "}}\n    migReset: true\n")
			}
			const profile1g, profile2g = 14, 5 // the driver's ids
			layouts := []string{pool("2g.12gb: 1, 1g.6gb: 1"), pool("2g.12gb: 2")}
			profiles := [][]uint64{{profile2g, profile1g}, {profile2g, profile2g}}
			m.agentFlags = []string{"--config", m.write(layouts[1])}
			m.startAgent()
			m.ready()
			if !m.cutGPUs()[0].MIG {
				m.set("gpu=0", "reset=true") // the mode was pending
			}
			m.wantCut(0, 2)
			eventually(t, "MIG mode", func() error {
				if s := m.state(); !s.Ready || !s.GPUs[0].MIG {
					return fmt.Errorf("%+v", s.GPUs[0])
				}
				return nil
			})
			file := filepath.Join(m.work, "neighbour")
			m.run(flags("--mig 2g"), []string{"sh", "-c", "printf %s $CUDA_VISIBLE_DEVICES >" + file + "; exec " + strings.Join(load("--alloc 1GiB --hold 1h"), " ")}).loads(1)
			neighbour, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for round, survived := 0, 0; survived < 2; round++ {
				target := layouts[round%2]
				crashed := m.killedAt(target, point, step*(round/2))
				if survived++; crashed {
					survived = 0
				}
				m.wantProfiles(0, profiles[round%2])
				if now := slices.Collect(maps.Values(m.places(0))); !slices.Contains(now, string(neighbour)) {
					t.Fatalf("round %d: the neighbour was on %s, and there is %q", round, neighbour, now)
				}
			}
		})
	}
}

// killedAt starts the agent with another layout so that it is killed at a point when it has passed that so many times,
// and starts it again. It is false where the agent came through.
func (m *machine) killedAt(layout, point string, passed int) bool {
	m.t.Helper()
	spec := point + "=exit"
	if passed > 0 {
		spec = fmt.Sprintf("%s=%d*off->exit", point, passed)
	}
	m.killAgent()
	m.write(layout)
	m.startAgent("KERF_FAILPOINTS=" + spec)
	crashed := false
	eventually(m.t, "the agent's end, or its being ready", func() error {
		if crashed = !m.agent.running(); crashed {
			return nil
		}
		if r := m.kerf("status", "--wait", "ready", "--timeout", "100ms"); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if crashed {
		m.agentCrashed()
	}
	return crashed
}

// wantProfiles waits until a GPU has exactly the instances of these profiles, each with its device.
func (m *machine) wantProfiles(gpu int, want []uint64) {
	m.t.Helper()
	eventually(m.t, "the instances of the layout", func() error {
		var have []uint64
		for p, uuid := range m.places(gpu) {
			if uuid != "" {
				have = append(have, p.profile)
			}
		}
		if slices.Sort(have); len(m.places(gpu)) != len(want) || !slices.Equal(have, slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("profiles %v, want %v", have, want)
		}
		return nil
	})
}
