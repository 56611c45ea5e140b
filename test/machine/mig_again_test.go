// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// showCaps prints the capability nodes that a program sees, and uses its instance.
func showCaps() []string {
	return []string{"sh", "-c", "echo caps $(ls $NVIDIA_DEV_ROOT/dev/nvidia-caps); exec " +
		strings.Join(load("--alloc 1GiB"), " ")}
}

// capsOf are the nodes that a program has printed.
func capsOf(t *testing.T, r result) string {
	t.Helper()
	for line := range strings.Lines(r.out) {
		if caps, ok := strings.CutPrefix(line, "caps "); ok && r.code == 0 && len(strings.Fields(caps)) == 2 {
			return strings.TrimSpace(caps)
		}
	}
	t.Fatalf("a program sees not just two capability nodes, or cannot use its instance: %v", r)
	return ""
}

// An instance that the agent creates again at its place has other capability numbers, and its old ones are another's.
// Each program has the nodes of its instance, and those work, also after a restart of the agent and a reboot. The
// driver allows access to an instance only with its nodes.
func TestMIGNumbersAreReadAnew(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h100x8", "1s")
	ask := flags("--mig 3g")
	numbers := map[string]int{}
	note := func(what string) {
		t.Helper()
		caps := capsOf(t, m.run(ask, showCaps()).wait())
		if numbers[caps]++; numbers[caps] > 2 { // the last one's are never the next one's, an older one's may be
			t.Errorf("%s: the numbers are %s again: %v", what, caps, numbers)
		}
		m.noGrants()
		m.wantCut(0, 0)
	}
	note("first")
	note("cut again")
	other := m.run(flags("--mig 1g --name other"), load("--alloc 1GiB --hold 1h"))
	other.loads(1)
	if caps := capsOf(t, m.run(ask, showCaps()).wait()); numbers[caps] > 1 {
		t.Errorf("with another: %s of %v", caps, numbers)
	}
	m.noGrantsBut(1)
	kept := m.wantCut(0, 1)
	m.restartAgent()
	if caps := capsOf(t, m.run(ask, showCaps()).wait()); caps == "" || !other.running() {
		t.Error("after a restart of the agent")
	}
	m.noGrantsBut(1)
	if now := m.wantCut(0, 1); !maps.Equal(now, kept) {
		t.Errorf("the neighbour was at %v, and is at %v", kept, now)
	}
	other.end()
	m.noGrants()
	m.wantCut(0, 0)
	if len(numbers) < 2 {
		t.Errorf("the numbers did not change: %v", numbers)
	}
}

// reboot is a restart of the node without a warning: every process, all driver state, and the files in /run are gone;
// the next agent finds another boot id. The audit log, which lies in /run here, survives it as it does on a node.
func (m *machine) reboot(runs ...*run) {
	m.t.Helper()
	if m.agent.running() {
		m.killAgent()
	}
	for _, r := range runs {
		r.end()
	}
	m.set("gpu=all", "reboot=true")
	m.unmount(false) // mounts end with the machine
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "audit" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(m.dir, e.Name())); err != nil {
			m.t.Fatal(err)
		}
	}
	m.boots++
	m.bootFile = filepath.Join(m.work, fmt.Sprintf("boot-%d", m.boots))
	if err := os.WriteFile(m.bootFile, fmt.Appendf(nil, "%08x-0000-4000-8000-000000000000\n", m.boots),
		0o444); err != nil {
		m.t.Fatal(err)
	}
}

// comesBackWith starts the agent and waits until the GPU is offered again, and demands that it has these profiles at
// each moment at which it is. The driver makes no instance before the GPU was seen without an offer.
func (m *machine) comesBackWith(gpu int, profiles []uint64) {
	m.t.Helper()
	late := func(by string) { m.set(fmt.Sprintf("gpu=%d", gpu), "latency.gi-create="+by) }
	late("1h")
	m.startAgent()
	waited := false
	eventually(m.t, "an agent that is ready", func() error {
		r := m.kerf("status", "-o", "json")
		var s status
		if r.code != 0 || json.Unmarshal([]byte(r.out), &s) != nil || !s.Ready || s.GPUs[gpu].Health != "healthy" {
			if !waited {
				late("0s")
			}
			waited = true
			return fmt.Errorf("%v\n%s", r, tail(m.agent.stderr()))
		}
		var have []uint64
		for p, uuid := range m.places(gpu) {
			if uuid != "" {
				have = append(have, p.profile)
			}
		}
		if slices.Sort(have); !slices.Equal(have, slices.Sorted(slices.Values(profiles))) {
			m.t.Fatalf("ready with %v, want %v", have, profiles)
		}
		return nil
	})
	if !waited {
		m.t.Error("it was offered before an instance could be made")
	}
}

// After a reboot the layout is there before the agent offers anything, whether or not the GPU has kept its MIG mode.
// This is also true if the reboot interrupts a change, at each moment of it. Instances that were in use then belong to
// no grant.
func TestMIGLayoutAfterAReboot(t *testing.T) {
	t.Parallel()
	for hardware, layouts := range map[string][2]struct {
		text     string
		profiles []uint64
		ask      string
	}{
		"h100x8": {{"1g.10gb: 2, 3g.40gb: 1", []uint64{19, 19, 9}, "--mig 3g"},
			{"4g.40gb: 1, 3g.40gb: 1", []uint64{5, 9}, "--mig 4g"}},
		"a30x2": {{"1g.6gb: 2, 2g.12gb: 1", []uint64{14, 14, 5}, "--mig 2g"},
			{"2g.12gb: 2", []uint64{5, 5}, "--mig 2g"}},
	} {
		t.Run(hardware, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: hardware, driver: "r580", noAgent: true})
			pool := func(n int) string {
				return layoutPool("    - {index: [0], migEnabled: true, instances: {" + layouts[n%2].text +
					"}}\n    allowGPUReset: true\n    autoMIGMode: false\n")
			}
			m.agentFlags = []string{"--config", m.write(pool(0))}
			m.startAgent()
			m.ready()
			m.wantProfiles(0, layouts[0].profiles)
			used := m.run(flags(layouts[0].ask+" --name used"), load("--alloc 1GiB --hold 1h"))
			used.loads(1)
			m.reboot(used)
			m.comesBackWith(0, layouts[0].profiles)
			m.noGrants()
			open := 0
			for n := 1; n <= 4; n++ {
				m.killAgent()
				m.write(pool(n))
				m.startAgent(fmt.Sprintf("KERF_FAILPOINTS=mig-driver=%d*off->exit", 2*n-1))
				eventually(t, "the agent's end in the middle of a change", func() error {
					if m.agent.running() {
						return fmt.Errorf("it runs:\n%s", tail(m.agent.stderr()))
					}
					return nil
				})
				if m.journalOf(0).Change != nil {
					open++
				}
				m.reboot()
				m.comesBackWith(0, layouts[n%2].profiles)
				eventually(t, "an instance", func() error { // stock may be taken of the GPUs once more
					if r := m.run(flags(layouts[n%2].ask), showCaps()).wait(); r.code != 0 {
						return fmt.Errorf("reboot %d: %v", n, r)
					}
					return nil
				})
				m.noGrants()
				m.toldAsCut(0)
			}
			if open < 3 {
				t.Errorf("the journal was open at %d reboots: too few to be a test", open)
			}
		})
	}
}
