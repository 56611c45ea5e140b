// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// held are the grants as a restart must not change them.
func held(s status) map[string]grant {
	all := map[string]grant{}
	for _, g := range s.Grants {
		g.Used, g.Health, g.LevelReason = nil, "", "" // these are of the moment
		for i := range g.Shares {
			g.Shares[i].Used = nil
		}
		all[g.ID] = g
	}
	return all
}

// four starts grants of every kind, three of which use their GPU.
func (m *machine) four() []*run {
	m.t.Helper()
	runs := []*run{
		m.run(flags("--memory 4GiB --percent 20 --name share"), load("--alloc 3GiB --hold 1h")),
		m.run(flags("--memory 8GiB --gpus 2 --name pair"), load("--alloc 2GiB --hold 1h --gpu 1")),
		m.run(flags("--gpus 1 --name whole"), load("--alloc 10GiB --hold 1h")),
	}
	for _, r := range runs {
		r.granted()
		wantLoad(m.t, r.loads(1)[0], "", gib, 16*gib)
	}
	idle := m.run(flags("--memory 2GiB"), hold())
	idle.granted()
	return append(runs, idle)
}

func (m *machine) wantSame(before map[string]grant, runs []*run) {
	m.t.Helper()
	if d := cmp.Diff(before, held(m.state())); d != "" {
		m.t.Errorf("grants after the restart (-before +after):\n%s", d)
	}
	for _, r := range runs {
		if !r.running() {
			m.t.Errorf("%q ended: %v", r.cmd.Args, r.wait())
		}
	}
	checkInvariants(m.t, m)
}

// A killed agent finds again what it had granted: same ids, names, caps and processes.
func TestRestartLosesNoGrant(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4", driver: driver})
			runs := m.four()
			checkInvariants(t, m)
			before := held(m.state())
			m.restartAgent()
			m.wantSame(before, runs)
			m.agent.signal(syscall.SIGTERM) // a stop in good order is no end of a grant either
			if got := m.agent.wait(); got.code != 0 {
				t.Errorf("agent on SIGTERM with grants: exit %d, signal %v", got.code, got.signal)
			}
			m.startAgent()
			m.ready()
			m.wantSame(before, runs)
			for i := range 2 { // killed again while it starts
				m.killAgent()
				m.startAgent()
				time.Sleep(time.Duration(10+60*i) * time.Millisecond)
			}
			m.killAgent()
			m.startAgent()
			m.ready()
			m.wantSame(before, runs)
			m.refused(flags("--gpus 2")) // nothing is granted twice
			if said := m.refused(flags("--memory 1GiB --name share")); !strings.Contains(said, `"share"`) {
				t.Errorf("the name is free after a restart: %s", said)
			}
			runs[0].end()
			eventually(t, "end of the first grant", func() error {
				if _, there := m.state().grant("share"); there {
					return fmt.Errorf("it is there")
				}
				return nil
			})
			checkInvariants(t, m)
		})
	}
}

// What ended while no agent ran is given back at the next start.
func TestEndWhileTheAgentIsDown(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	runs := m.four()
	m.state() // learns where the cgroups are
	m.killAgent()
	runs[0].end()
	runs[2].end()
	m.startAgent()
	m.ready()
	eventually(t, "end of two grants", func() error {
		s := m.state()
		_, one := s.grant("share")
		_, two := s.grant("whole")
		if one || two || len(s.Grants) != 2 {
			return fmt.Errorf("grants %+v", s.Grants)
		}
		return nil
	})
	checkInvariants(t, m)
	m.run(flags("--gpus 1"), hold()).granted() // there is room again
}

// A crash or an error at any step of activate and end leaves nothing behind but grants whose processes run.
func TestFailureAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, point := range lifecycle.Failpoints() {
		// Those of containers are met by containers alone: sharing/node and test/e2e stop there.
		if !strings.HasPrefix(point, "arm-") && !strings.HasPrefix(point, "end-") {
			continue
		}
		for _, kind := range []string{"exit", "1*error(broken on purpose)"} {
			t.Run(point+"/"+firstWord(kind), func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, setup{hardware: "t4x4"})
				neighbour := m.run(flags("--memory 4GiB --name neighbour"), load("--alloc 3GiB --hold 1h"))
				neighbour.loads(1)
				before := held(m.state())
				m.restartAgent("KERF_FAILPOINTS=" + point + "=" + kind)
				if strings.HasPrefix(point, "arm-") {
					m.failedActivate(kind)
				} else {
					m.failedEnd(kind)
				}
				eventually(t, "only the neighbour", func() error {
					if s := m.state(); len(s.Grants) != 1 {
						return fmt.Errorf("grants %+v", s.Grants)
					}
					return nil
				})
				m.wantSame(before, []*run{neighbour})
				// What was asked for can be had now, all of it.
				m.run(flags("--gpus 3"), hold()).granted()
				checkInvariants(t, m)
			})
		}
	}
}

func firstWord(s string) string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("*(1", r) })[0]
}

// failedActivate runs what fails while it is activated: the program never runs.
func (m *machine) failedActivate(kind string) {
	m.t.Helper()
	victim := m.run(flags("--gpus 1 --name victim"), []string{"sh", "-c", "echo ran"})
	if kind == "exit" {
		m.agentCrashed() // it may stand still until an agent is back
	}
	got := victim.wait()
	if got.code != 125 || got.out != "" || got.err == "" {
		m.t.Errorf("run that was not activated: %v, want exit 125 with the reason", got)
	}
	if s := victim.readStatus(); s.State != "refused" || s.Error == nil {
		m.t.Errorf("status file: %+v", s)
	}
	if kind != "exit" && !strings.Contains(got.err, "broken on purpose") {
		m.t.Errorf("the reason is missing: %s", got.err)
	}
}

// failedEnd runs what fails when it ends.
func (m *machine) failedEnd(kind string) {
	m.t.Helper()
	victim := m.run(flags("--gpus 1 --name victim"), load("--alloc 1GiB"))
	if got := victim.wait(); got.code != 0 {
		m.t.Errorf("victim: %v", got)
	}
	if kind == "exit" {
		m.agentCrashed()
	}
}

// agentCrashed waits for the agent to kill itself, and starts it again.
func (m *machine) agentCrashed() {
	m.t.Helper()
	if got := m.agent.wait(); got.signal != syscall.SIGKILL {
		m.t.Fatalf("agent at its failpoint: exit %d, signal %v", got.code, got.signal)
	}
	m.startAgent()
	m.ready()
}

// A client that is killed in the middle of an activate leaves nothing.
func TestClientKilledDuringActivate(t *testing.T) {
	t.Parallel()
	for _, point := range lifecycle.Failpoints() {
		if !strings.HasPrefix(point, "arm-") {
			continue
		}
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
			m.startAgent("KERF_FAILPOINTS=" + point + "=1*sleep(700ms)")
			m.ready()
			victim := m.run(flags("--memory 1GiB"), hold())
			eventually(t, "claim", func() error {
				if len(m.state().Grants) == 0 {
					return fmt.Errorf("none")
				}
				return nil
			})
			victim.end()
			m.noGrants()
			checkInvariants(t, m)
			m.run(flags("--gpus 4"), hold()).granted()
			checkInvariants(t, m)
		})
	}
}

// kerf run over a restart of the agent waits for it.
func TestRunWaitsForARestart(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	m.killAgent()
	r := m.run(flags("--memory 1GiB"), []string{"echo", "ran"})
	time.Sleep(300 * time.Millisecond) // lets it find no process, mostly; it is right either way
	m.startAgent()
	if got := r.wait(); got.code != 0 || got.out != "ran\n" {
		t.Errorf("run over a restart: %v", got)
	}
	m.noGrants()
	checkInvariants(t, m)
}

// Without an agent it is said what is missing.
func TestRunWithoutAnAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	if r := m.run([]string{"--run-dir", m.base + "/none", "--memory", "1GiB"},
		[]string{"true"}).wait(); r.code != 125 ||
		!strings.Contains(r.err, "kerf-agent --run-dir") {
		t.Errorf("run where there never was an agent: %v", r)
	}
	m.killAgent()
	if said := m.refused(flags("--memory 1GiB")); !strings.Contains(said, "does not listen") {
		t.Errorf("run without an agent: %s", said)
	}
	if r := m.kerf("status"); r.code == 0 || !strings.Contains(r.err, "does not listen") {
		t.Errorf("status without an agent: %v", r)
	}
}
