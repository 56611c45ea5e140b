// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// sharedPool shares the two instances of GPU 0, and leaves the other GPUs as they are.
func sharedPool(backends, layout string) string {
	return head + "spec:\n  pools:\n  - name: default\n    backends: [" + backends +
		"]\n    onOverCap: warn\n    migLayouts: [" + layout + "]\n"
}

const twoShared = "{index: [0], migEnabled: true, instances: {3g.40gb: 2}, shared: true}"

// Instances that are shared count memory each by itself: who has a share sees one MIG device of the size of its cap, is
// refused what is past it, and a full instance is full however much the other one and the other GPUs have.
func TestSharedInstances(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "h100x8", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(sharedPool("driver, libkerf, reactive", twoShared))}
	m.startAgent()
	m.ready()
	before := m.wantCut(0, 2)
	pin := " --gpu-uuid " + m.uuid(0)
	var runs []*run
	for i := range 4 { // two on each
		p := m.run(flags(fmt.Sprintf("--memory 18GiB --name n%d", i)+pin), load("--alloc 16GiB --hold 1h"))
		wantLoad(t, p.loads(1)[0], "", 16*gib, 16*gib)
		runs = append(runs, p)
	}
	on := map[string]int{}
	for i := range runs {
		g := m.grant(fmt.Sprintf("n%d", i))
		if g.Level != "userspace" || g.Backend != "libkerf" || len(g.Shares) != 1 || g.Used == nil ||
			*g.Used < 16*gib || *g.Used > 18*gib {
			t.Fatalf("grant %d: %+v", i, g)
		}
		on[g.Shares[0].GPU]++
	}
	want := map[string]int{m.uuid(0) + "/3g.40gb@0": 2, m.uuid(0) + "/3g.40gb@4": 2}
	if !maps.Equal(on, want) {
		t.Fatalf("shares are on %v, want %v", on, want)
	}
	for _, ask := range []string{"--memory 10GiB", "--gpus 1", "--percent 10", "--mig 3g.40gb"} {
		if said := m.refused(flags(ask + pin)); !strings.Contains(said, "MIG") && !strings.Contains(said, "free of") {
			t.Errorf("%s: %s", ask, said)
		}
	}
	runs[3].end()
	eventually(t, "the end of a share", func() error {
		if s := m.state(); len(s.Grants) != 3 {
			return fmt.Errorf("%d grants", len(s.Grants))
		}
		return nil
	})
	greedy := m.run(flags("--memory 8GiB --name greedy"+pin), load("--alloc 12GiB --step 256MiB --hold 1h"))
	got := greedy.loads(1)[0]
	if !strings.Contains(got.err(), oom) || got.Total == nil || *got.Total != 8*gib {
		t.Errorf("past its share: %v", got)
	}
	one := m.run(flags("--memory 1GiB"+pin),
		[]string{"sh", "-c",
			"ls $NVIDIA_DEV_ROOT/dev/nvidia-caps | wc -l; echo $CUDA_VISIBLE_DEVICES $KERF_LEVEL"}).wait()
	if lines := strings.Fields(one.out); one.code != 0 || len(lines) != 3 || lines[0] != "2" ||
		!strings.HasPrefix(lines[1], "MIG-") || lines[2] != "userspace" {
		t.Errorf("what a program sees: %v", one)
	}
	// A layout that no longer shares takes nothing from a program with a share. It gives no program a second grant on
	// it.
	m.restartAgent()
	m.write(sharedPool("driver, libkerf, reactive", strings.Replace(twoShared, ", shared: true", "", 1)))
	if said := m.refused(flags("--mig 3g.40gb" + pin)); said == "" {
		t.Error("an instance that is shared was given whole")
	}
	if now := m.wantCut(0, 2); !maps.Equal(now, before) || !runs[0].running() || m.grant("n0").Level != "userspace" {
		t.Errorf("after a restart and another layout: %v, then %v, %+v", before, now, m.grant("n0"))
	}
	for _, p := range append(runs[:3], greedy) {
		p.end()
	}
	m.noGrants()
	eventually(t, "an instance that is given whole again", func() error {
		if r := m.run(flags("--mig 3g.40gb"+pin), []string{"true"}).wait(); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	// Shared again: the two instances come into the inventory while the agent goes on with the driver as it is.
	m.write(sharedPool("driver, libkerf, reactive", twoShared))
	eventually(t, "instances that are shared again", func() error {
		if r := m.run(flags("--memory 18GiB"+pin), []string{"true"}).wait(); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if gpus := m.state().GPUs; len(gpus) != 10 || gpus[1].Health != "healthy" || gpus[2].Health != "healthy" {
		t.Errorf("%d GPUs: %+v", len(gpus), gpus[:3])
	}
	if log := m.agent.stderr(); strings.Count(log, `msg="connected to driver"`) != 1 {
		t.Errorf("the driver was opened again:\n%s", tail(log))
	}
}

// Where the driver tells only what processes use, who takes more than its share of an instance is found by that.
func TestSharedInstancesWatched(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "a30x2", driver: "r580", noAgent: true})
	pool := strings.Replace(sharedPool("driver, reactive",
		"{index: [0], migEnabled: true, instances: {2g.12gb: 2}, shared: true}"), "onOverCap: warn",
		"onOverCap: kill\n    allowGPUReset: true", 1)
	m.agentFlags = []string{"--config", m.write(pool)}
	m.startAgent()
	m.ready()
	m.wantCut(0, 2)
	pin := " --gpu-uuid " + m.uuid(0)
	eventually(t, "two shared instances in the ledger", func() error {
		if gpus := m.state().GPUs; len(gpus) != 4 || gpus[1].Health != "healthy" {
			return fmt.Errorf("%+v", gpus)
		}
		return nil
	})
	quiet := m.run(flags("--memory 4GiB --name quiet"+pin), load("--alloc 3GiB --hold 1h"))
	quiet.loads(1)
	over := m.run(flags("--memory 4GiB --name over"+pin), load("--alloc 6GiB --hold 1h"))
	eventually(t, "the end of who is over its cap", func() error {
		if over.running() {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	if g := m.grant("quiet"); !quiet.running() || g.Level != "reactive" {
		t.Errorf("its neighbour: %+v", g)
	}
}

// A fault that the driver tells of one instance is its holders', and not their neighbours' on the GPU; it ends when the
// GPU has been well for a while.
func TestAFaultOfAnInstance(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h100x8", "1h")
	m.run(flags("--mig 3g --name one"), load("--alloc 1GiB --hold 1h")).loads(1)
	var at place
	for at = range m.wantCut(0, 1) {
		m.run(flags("--mig 3g --name two"), load("--alloc 1GiB --hold 1h")).loads(1)
	}
	m.set("gpu=0", fmt.Sprintf("xid=48@%d", at.gi))
	entry := fmt.Sprintf("%s/3g.40gb@%d", m.uuid(0), at.start)
	eventually(t, "a fault of an instance in the audit log", func() error {
		if log := m.auditLog(); !strings.Contains(log, entry) {
			return fmt.Errorf("%s", tail(log))
		}
		return nil
	})
	if s := m.state(); s.GPUs[0].Health != "healthy" || m.grant("two").Health != "healthy" {
		t.Errorf("the rest of the GPU: %+v, %+v", s.GPUs[0], m.grant("two"))
	}
	eventually(t, "its end", func() error {
		if g := m.grant("one"); g.Health != "healthy" || len(m.state().Warnings) > 0 {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
}
