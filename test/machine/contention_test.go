// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A machine has one agent: a second one ends and says who is there, and the first is not disturbed.
func TestOneAgentPerMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 2GiB"), load("--alloc 1GiB --hold 1h"))
	r.loads(1)
	before := held(m.state())
	for name, dir := range map[string]string{"same directory": m.dir, "other directory": m.base + "/b"} {
		second := m.anAgent(dir)
		if got := second.wait(); got.code != 1 || !strings.Contains(got.err, "pid "+strconv.Itoa(m.agent.pid())) ||
			!strings.Contains(got.err, m.dir) {
			t.Errorf("%s: second agent: exit %d\n%s", name, got.code, got.err)
		}
		if !m.agent.running() {
			t.Fatalf("%s: the first agent ended", name)
		}
		m.wantSame(before, []*run{r})
	}
	// Over a killed agent another directory may take the machine, but it finds the GPUs free of locks only.
	m.restartAgent()
	m.wantSame(before, []*run{r})
}

// Forty at once for sixteen shares: sixteen run, and the others see the numbers in their error. When all have ended the
// machine is as it was.
func TestFortyForSixteen(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	warm := m.run(flags("--memory 3GiB"), load("--alloc 1GiB")) // what is made once is made now
	warm.wait()
	m.noGrants()
	checkInvariants(t, m)
	openFiles, mounted := descriptors(t, m.agent.pid()), mounts(t, m.base)

	var runs []*run
	for range 40 { // four of 3 GiB fit into a T4
		runs = append(runs, m.run(flags("--memory 3GiB"), load("--alloc 2GiB --hold 1h")))
	}
	var winners []*run
	for _, r := range runs {
		var won bool
		eventually(t, "outcome of a run", func() error {
			if won = strings.Contains(r.stdout(), "\n"); won || !r.running() {
				return nil
			}
			return fmt.Errorf("neither running nor refused")
		})
		if won {
			winners = append(winners, r)
			wantLoad(t, r.loads(1)[0], "", 2*gib, 2*gib)
			continue
		}
		if got := r.wait(); got.code != 125 || !strings.Contains(got.err, "3GiB requested") ||
			!strings.Contains(got.err, "free of") {
			t.Errorf("a run that found no room: %v", got)
		}
	}
	if len(winners) != 16 {
		t.Errorf("%d of 40 run, want 16", len(winners))
	}
	checkInvariants(t, m)
	if s := m.state(); len(s.Grants) != 16 {
		t.Errorf("%d grants, want 16", len(s.Grants))
	}
	for _, r := range winners {
		r.end()
	}
	m.noGrants()
	checkInvariants(t, m)
	if l := m.limits(); len(l) != 0 {
		t.Errorf("limits left: %+v", l)
	}
	if left := children(m.parent); len(left) != 0 {
		t.Errorf("cgroups left: %q", left)
	}
	if now := mounts(t, m.base); now != mounted {
		t.Errorf("%d mounts, %d before", now, mounted)
	}
	eventually(t, "the agent to close its files", func() error {
		if now := descriptors(t, m.agent.pid()); now > openFiles {
			return fmt.Errorf("%d open, %d before", now, openFiles)
		}
		return nil
	})
}
