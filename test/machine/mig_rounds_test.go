// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Programs with mixed profiles come and go, four at a time, and the agent restarts between them now and then. Their
// neighbors stay where they are, after each round the ledger agrees with the driver, and no instance is left behind.
// The soak takes 500 rounds.
func TestMIGRounds(t *testing.T) {
	t.Parallel()
	rounds := 6
	if soaking() {
		rounds = 500
	}
	seven := []string{"--mig 1g", "--mig 1g.10gb", "--mig 1g.20gb", "--mig 2g", "--mig 3g", "--mig 4g", "--mig >=16GiB",
		"--memory 12GiB --min-enforcement hardware"}
	for hardware, asks := range map[string][]string{
		"a100x8": seven, "h100x8": seven,
		"b200x8": {"--mig 1g", "--mig 1g.23gb", "--mig 1g.45gb", "--mig 2g", "--mig 3g.90gb", "--mig 4g",
			"--mig >=30GiB", "--memory 12GiB --min-enforcement hardware"},
		// Of its four instances the neighbour has two, so that a 4g always waits, and is refused.
		"rtxpro6000x4": {"--mig 1g", "--mig 1g.24gb", "--mig 2g", "--mig 2g.48gb", "--mig 4g", "--mig >=16GiB",
			"--memory 12GiB --min-enforcement hardware"},
	} {
		t.Run(hardware, func(t *testing.T) {
			t.Parallel()
			m := onDemand(t, hardware, "1s")
			neighbour := m.run(flags("--mig 2g --name neighbour"), load("--alloc 1GiB --hold 1h"))
			neighbour.loads(1)
			before := m.wantCut(0, 1)
			r := rand.New(rand.NewPCG(5, 3))
			ran, refused := 0, 0
			for round := range rounds {
				var runs []*run
				for range 4 {
					runs = append(runs, m.run(flags(asks[r.IntN(len(asks))]), load("--alloc 1GiB")))
				}
				for _, one := range runs {
					switch got := one.wait(); {
					case got.code == 0:
						ran++
					case got.code == 125 && (strings.Contains(got.err, "not enough free") ||
						strings.Contains(got.err, "unavailable")):
						// for want of room, or of an answer of a driver that has no CPU on a busy machine
						refused++
					default:
						t.Errorf("round %d: %v", round, got)
					}
				}
				if round%10 == 3 {
					m.restartAgent()
				}
				m.noGrantsBut(1)
				m.toldAsCut(0)
				if round%5 == 4 || round == rounds-1 {
					m.wantCut(0, 1)
				}
				for at, uuid := range before {
					if now := m.places(0); now[at] != uuid || !neighbour.running() {
						t.Fatalf("round %d: the neighbour was at %v, and there is %v", round, before, now)
					}
				}
			}
			t.Logf("%d rounds: %d ran, %d were refused", rounds, ran, refused)
			if ran == 0 {
				t.Errorf("none of %d ran", refused)
			}
			neighbour.end()
			m.wantCut(0, 0)
		})
	}
}

// toldAsCut waits until the agent tells of just the instances that the driver has of a GPU.
func (m *machine) toldAsCut(gpu int) {
	m.t.Helper()
	type gpuState struct {
		MIGState struct {
			Instances []struct {
				UUID string `json:"uuid"`
			} `json:"instances"`
		} `json:"migState"`
	}
	eventually(m.t, "a ledger that is as the driver is", func() error {
		r := m.kerf("status", "-o", "json")
		s := decode[struct {
			GPUs []gpuState `json:"gpus"`
		}](m.t, r.out)
		var told []string
		for _, p := range s.GPUs[gpu].MIGState.Instances {
			told = append(told, p.UUID)
		}
		here := slices.Sorted(maps.Values(m.places(gpu)))
		if slices.Sort(told); !slices.Equal(told, here) {
			return fmt.Errorf("the driver has %q, the agent tells of %q", here, told)
		}
		return nil
	})
}
