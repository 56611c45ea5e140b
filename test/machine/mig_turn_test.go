// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"
	"testing"
)

// turnPool leaves the mode of GPU 0 to demand; the others are in none.
func turnPool(warm string) string {
	return head + "spec:\n  pools:\n  - name: default\n    mode: auto\n    migIdleTTL: " + warm +
		"\n    migLayouts: [{index: [1, 2, 3, 4, 5, 6, 7], migEnabled: false}]\n    gpuRules: [{index: [1, 2, 3, 4, " +
		"5, 6, 7], " +
		"excluded: true}]\n"
}

// An idle GPU enters MIG mode for a program that asks for an instance, and leaves it for one that asks for a share. It
// does not switch while a program is on it, nor before its mode was kept for a while; and the agent may end at any
// time.
func TestModeOnDemand(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "h100x8", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(turnPool("1h"))}
	m.startAgent()
	m.ready()
	inst := m.run(flags("--mig 3g --name inst"), load("--alloc 1GiB --hold 1h"))
	wantLoad(t, inst.loads(1)[0], "", gib, gib)
	if g, ok := m.state().grant("inst"); !ok || g.Level != "hardware" || !m.cutGPUs()[0].MIG {
		t.Fatalf("grant %+v, %+v", g, m.cutGPUs()[0])
	}
	if said := m.refused(flags("--memory 4GiB")); !strings.Contains(said, "held by") ||
		!strings.Contains(said, "inst") {
		t.Errorf("a share with an instance in use: %s", said)
	}
	m.restartAgent()
	if said := m.refused(flags("--memory 4GiB")); !strings.Contains(said, "held by") || !inst.running() {
		t.Errorf("after a restart of the agent: %s", said)
	}
	inst.end()
	m.noGrants()
	share := func() error {
		if r := m.run(flags("--memory 4GiB"), load("--alloc 1GiB")).wait(); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	}
	if err := share(); err == nil {
		t.Error("the mode was not kept for a while")
	}
	m.rewrite(turnPool("1s"))
	eventually(t, "a share, once the mode was kept for long enough", share)
	if g := m.cutGPUs()[0]; g.MIG || len(g.Instances) != 0 {
		t.Errorf("left: %+v", g)
	}
	held := m.run(flags("--memory 4GiB --name held"), load("--alloc 1GiB --hold 1h"))
	held.loads(1)
	if said := m.refused(flags("--mig 1g")); !strings.Contains(said, "held") || m.cutGPUs()[0].MIG || !held.running() {
		t.Errorf("an instance with a share in use: %s", said)
	}
	held.end()
	m.noGrants()
	eventually(t, "an instance again", func() error {
		if r := m.run(flags("--mig 1g"), load("--alloc 1GiB")).wait(); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// MIG on a GPU that cannot do it is refused for that GPU, which is shared all the same, and the others get instances.
func TestMIGOnAGPUThatCannot(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "mixed", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(
		layoutPool("    - {index: [0, 2], migEnabled: true, instances: {1g.10gb: 2}}\n"))}
	m.startAgent()
	m.ready()
	m.wantCut(0, 2)
	s := m.state()
	if said := strings.Join(s.Warnings, "\n"); strings.Count(said, "cannot do MIG") != 1 ||
		!strings.Contains(said, s.GPUs[2].UUID) {
		t.Errorf("warnings: %s", said)
	}
	if r := m.run(flags("--mig 1g"), load("--alloc 1GiB")).wait(); r.code != 0 {
		t.Errorf("an instance of the other: %v", r)
	}
	for _, index := range []int{2, 3} {
		if g := m.state().GPUs[index]; g.Health != "healthy" {
			t.Errorf("%+v", g)
		}
	}
	if r := m.run(flags("--memory 10GiB --gpus 2 --gpu-model *T4*"), load("--alloc 1GiB")).wait(); r.code != 0 {
		t.Errorf("shares of those that cannot: %v", r)
	}
	if said := m.refused(flags("--mig 1g --gpu-model *T4*")); !strings.Contains(said, "cannot do MIG") {
		t.Errorf("an instance of one that cannot: %s", said)
	}
}
