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
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// moments are how many of the moments of a change are passed over between two kills: the soak takes each moment, and
// the tests that run always every few.
func moments() int {
	if soaking() {
		return 1
	}
	return 7
}

// meanwhile are what happens to GPU 0 between an agent's death and its next start. Each returns what is done once that
// is ready.
func (m *machine) meanwhile() []func() (then func()) {
	return []func() func(){m.changedByHand, m.anotherAgent, func() func() { return func() {} }}
}

// The test kills the whole agent before and after each call to the driver and each journal write of a change. It
// changes one layout to another and back, until there is no such moment left. Then a user makes or destroys an instance
// by hand, or another agent comes up. It ends at the layout, with nothing left over, and programs on the GPU stay where
// they are. The soak takes each moment with each of these, and this test every few, with one after the other.
func TestMIGKilledAtEachMoment(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"mig-driver", "mig-journal"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "a30x2", driver: "r580", noAgent: true})
			pool := func(instances string) string {
				return layoutPool("    - {index: [0], migEnabled: true, instances: {" + instances +
					"}}\n    allowGPUReset: true\n")
			}
			const profile1g, profile2g = 14, 5 // the driver's ids
			layouts := []string{pool("2g.12gb: 1, 1g.6gb: 1"), pool("2g.12gb: 2")}
			profiles := [][]uint64{{profile2g, profile1g}, {profile2g, profile2g}}
			m.agentFlags = []string{"--config", m.write(layouts[1])}
			m.startAgent()
			m.ready()
			m.wantCut(0, 2)
			eventually(t, "MIG mode", func() error {
				if s := m.state(); !s.Ready || !s.GPUs[0].MIG {
					return fmt.Errorf("%+v", s.GPUs[0])
				}
				return nil
			})
			file := filepath.Join(m.work, "neighbour")
			m.run(flags("--mig 2g"), []string{"sh", "-c", "printf %s $CUDA_VISIBLE_DEVICES >" + file + "; exec " +
				strings.Join(load("--alloc 1GiB --hold 1h"), " ")}).loads(1)
			neighbour, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m.eachMoment(point, func(n int) { m.write(layouts[n%2]) }, nil, func(n int) {
				m.wantProfiles(0, profiles[n%2])
				if now := slices.Collect(maps.Values(m.places(0))); !slices.Contains(now, string(neighbour)) {
					t.Fatalf("change %d: the neighbour was on %s, and there is %q", n, neighbour, now)
				}
			})
			m.met(point, map[string][]string{
				"mig-driver":  {"create-gi", "create-ci", "destroy-ci", "destroy-gi"},
				"mig-journal": {"intent", "create-gi", "create-ci", "destroy-ci", "destroy-gi"},
			}[point]...)
		})
	}
}

// The same while the pool puts a GPU in MIG mode with a layout, and takes it out of it again: it ends as the pool says,
// and who has a share of another GPU is not disturbed.
func TestModeKilledAtEachMoment(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"mig-driver", "mig-journal"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "h100x8", driver: "r580", noAgent: true})
			const profile3g = 9
			layouts := []string{
				layoutPool("    - {index: [0], migEnabled: true, instances: {3g.40gb: 1}}\n"),
				layoutPool("    - {index: [0], migEnabled: false}\n"),
			}
			m.agentFlags = []string{"--config", m.write(layouts[1])}
			m.startAgent()
			m.ready()
			neighbour := m.run(flags("--memory 4GiB --gpu-uuid "+m.uuid(1)), load("--alloc 1GiB --hold 1h"))
			neighbour.loads(1)
			m.eachMoment(point, func(n int) { m.write(layouts[n%2]) }, nil, func(n int) {
				want := [][]uint64{{profile3g}, nil}[n%2]
				eventually(t, "the mode", func() error {
					if g := m.state().GPUs[0]; g.MIG != (n%2 == 0) || m.cutGPUs()[0].MIG != g.MIG ||
						g.Health != "healthy" {
						return fmt.Errorf("change %d: %+v, by the driver %+v", n, g, m.cutGPUs()[0])
					}
					return nil
				})
				m.wantProfiles(0, want)
				if !neighbour.running() {
					t.Fatalf("change %d: the neighbour ended: %v", n, neighbour.wait())
				}
			})
			m.met(point, map[string][]string{
				"mig-driver":  {"no change", "end of the mode", "create-gi"},
				"mig-journal": {"no change", "intent", "end of the mode"},
			}[point]...)
		})
	}
}

// The same while a GPU's mode follows demand: a program that asks again gets its request, and the GPU's mode always
// agrees with what the agent reports.
func TestTurnKilledAtEachMoment(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"mig-driver", "mig-journal"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "h100x8", driver: "r580", noAgent: true})
			m.agentFlags = []string{"--config", m.write(turnPool("1s"))}
			m.startAgent()
			m.ready()
			ask := func(n int) *run {
				return m.run(flags([]string{"--mig 3g", "--memory 4GiB"}[n%2]), load("--alloc 1GiB"))
			}
			m.eachMoment(point, func(int) {}, ask, func(n int) {
				eventually(t, "what is requested", func() error {
					if r := ask(n).wait(); r.code != 0 {
						return fmt.Errorf("change %d: %v", n, r)
					}
					return nil
				})
				m.noGrants()
				m.toldAsCut(0)
				if g := m.state().GPUs[0]; g.MIG != (n%2 == 0) || m.cutGPUs()[0].MIG != g.MIG || g.Health != "healthy" {
					t.Fatalf("change %d: %+v, by the driver %+v", n, g, m.cutGPUs()[0])
				}
			})
			m.met(point, map[string][]string{"mig-driver": {"mode by demand", "create-gi"},
				"mig-journal": {"mode by demand", "intent"}}[point]...)
		})
	}
}

// eachMoment has the agent killed at each moment of a change and of the change back, in turn, until it completes both.
// begin writes the wanted layout while no agent runs, ask is a program with a request then, nil for none, and done
// checks the end of the change.
func (m *machine) eachMoment(point string, begin func(n int), ask func(n int) *run, done func(n int)) {
	m.t.Helper()
	acts := m.meanwhile()
	for first := range acts {
		kills := 0
		for n, survived := 0, 0; survived < 2; n++ {
			m.killAgent()
			act := acts[first]
			if !soaking() {
				act = acts[n%len(acts)]
			}
			begin(n)
			survived++
			if m.killedAt(point, moments()*(n/2), func() {
				if ask == nil {
					return
				}
				// what is kept warm may be in the way at first
				eventually(m.t, "what is requested, or the agent's end", func() error {
					r := ask(n)
					select {
					case <-m.agent.exited:
						r.end() // it would wait for an agent until it gives up
						return nil
					case <-r.exited:
					}
					if got := r.wait(); got.code != 0 && m.agent.running() {
						return fmt.Errorf("change %d: %v", n, got)
					}
					return nil
				})
			}, act) {
				survived, kills = 0, kills+1
			}
			done(n)
		}
		if kills < 2 {
			m.t.Errorf("%s: killed %d times: too few to be a test", point, kills)
		}
		if !soaking() {
			return
		}
	}
}

// killedAt starts the agent so that it is killed at a point when it has passed that so many times, and starts it again.
// It is false where the agent came through. ask is called once the agent is ready, act after its death.
func (m *machine) killedAt(point string, passed int, ask func(), act func() func()) bool {
	m.t.Helper()
	spec := point + "=exit"
	if passed > 0 {
		spec = fmt.Sprintf("%s=%d*off->exit", point, passed)
	}
	m.startAgent("KERF_FAILPOINTS=" + spec)
	eventually(m.t, "the agent's end, or its being ready", func() error {
		if !m.agent.running() {
			return nil
		}
		if r := m.kerf("status", "--wait", "ready", "--timeout", "100ms"); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if m.agent.running() {
		ask()
	}
	if m.agent.running() {
		m.agent.kill() // what it does next is no part of the change
		m.startAgent()
		m.ready()
		return false
	}
	if got := m.agent.wait(); got.signal != syscall.SIGKILL {
		m.t.Fatalf("agent at its failpoint: exit %d, signal %v", got.code, got.signal)
	}
	m.noteKill(point, passed)
	then := act()
	m.startAgent()
	m.ready()
	then()
	return true
}

// changedByHand makes an instance by hand on GPU 0, where there is room; the agent leaves it alone, and says that it is
// not its own. Then it goes as it came, so that a layout is not in its way.
func (m *machine) changedByHand() func() {
	m.t.Helper()
	if !m.cutGPUs()[0].MIG {
		return func() {}
	}
	// The driver's id of 1g with media extensions: no program here asks Kerf for that, so that each moment can be
	// distinguished.
	profile := map[string]uint64{"a30x2": 21, "h100x8": 20}[m.hardware]
	start, made := uint64(0), m.ask(0, wire.Request{Op: wire.OpGICreate, Args: [6]uint64{profile, 0}})
	for made.Status != wire.OK && start < 6 {
		start++
		made = m.ask(0, wire.Request{Op: wire.OpGICreate, Args: [6]uint64{profile, start}})
	}
	if made.Status != wire.OK {
		return func() {} // it is full
	}
	gi := made.Vals[0]
	ci := m.ask(0, wire.Request{Op: wire.OpCICreate, Args: [6]uint64{gi}})
	if ci.Status != wire.OK {
		m.t.Fatalf("make an instance by hand: status %v", ci.Status)
	}
	theirs := place{gi, profile, start}
	uuid := m.places(0)[theirs]
	return func() {
		m.t.Helper()
		if now := m.places(0)[theirs]; now != uuid || uuid == "" {
			m.t.Fatalf("what was made by hand was %q, and is %q: %v", uuid, now, m.places(0))
		}
		if r := m.kerf("mig", "status"); !strings.Contains(r.out, "not made by Kerf") {
			m.t.Errorf("what was made by hand is not reported as such: %v", r)
		}
		for _, req := range []wire.Request{{Op: wire.OpCIDestroy, Args: [6]uint64{gi, ci.Vals[0]}},
			{Op: wire.OpGIDestroy, Args: [6]uint64{gi}}} {
			if r := m.ask(0, req); r.Status != wire.OK {
				m.t.Fatalf("remove what was made by hand: status %v", r.Status)
			}
		}
	}
}

// anotherAgent comes up with a new directory, and rules without MIG: it takes over nothing, and leaves everything as it
// is.
func (m *machine) anotherAgent() func() {
	m.t.Helper()
	before, was := m.places(0), m.cutGPUs()[0].MIG
	flags := m.agentFlags
	rules := filepath.Join(m.work, "others.yaml")
	if err := os.WriteFile(rules, []byte(head+"spec:\n  pools:\n  - {name: default, mode: shared}\n"),
		0o600); err != nil {
		m.t.Fatal(err)
	}
	other := filepath.Join(m.base, "b")
	m.agentFlags = []string{"--config", rules}
	second := m.anAgent(other)
	m.agentFlags = flags
	if r := call(m.t, m.env, program("kerf"), "--run-dir", other, "status", "--wait", "ready", "--timeout",
		patience.String()); r.code != 0 {
		m.t.Fatalf("another agent does not become ready: %v\n%s", r, tail(second.stderr()))
	}
	if r := call(m.t, m.env, program("kerf"), "--run-dir", other, "mig", "status"); r.code != 0 ||
		strings.Count(r.out, "not made by Kerf") != len(before) {
		m.t.Errorf("another agent tells of %v: %v", before, r)
	}
	second.signal(syscall.SIGTERM)
	if r := second.wait(); r.code != 0 {
		m.t.Errorf("another agent on SIGTERM: exit %d, signal %v", r.code, r.signal)
	}
	if now := m.places(0); !maps.Equal(now, before) || m.cutGPUs()[0].MIG != was {
		m.t.Errorf("another agent has made %v of %v", now, before)
	}
	return func() {}
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
		if slices.Sort(have); len(m.places(gpu)) != len(want) ||
			!slices.Equal(have, slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("profiles %v, want %v", have, want)
		}
		return nil
	})
}
