// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// held is what a container of a pod has: it must stay the same whatever is restarted around it.
type held struct {
	container string
	restarts  int32
	grant     string
	level     string
	caps      string
}

// heldBy compares every running container of the pods with the agent's grants and the driver's limits.
func (e *testCase) heldBy(pods ...*pod) map[string]held {
	e.Helper()
	all := map[string]held{}
	for _, p := range pods {
		for _, s := range containerStatuses(p.get()) {
			if s.State.Running == nil {
				continue
			}
			g := e.grantOf(p, s.Name)
			caps := e.node.capsOf(e.T, containerID(s))
			var text string
			for _, gpu := range slices.Sorted(maps.Keys(caps)) {
				text += fmt.Sprintf("%s:%d ", gpu, caps[gpu])
			}
			all[p.name+"/"+s.Name] = held{containerID(s), s.RestartCount, g.ID, g.Level, text}
		}
	}
	return all
}

// wantSame waits until the pods have what they had: an agent that has just started may still be reading.
func (e *testCase) wantSame(before map[string]held, pods ...*pod) {
	e.Helper()
	after := e.heldBy(pods...)
	for name, was := range before {
		if now := after[name]; now != was {
			e.Errorf("%s had %+v, has %+v", name, was, now)
		}
	}
}

// Restarts of the agent, kubelet and containerd disturb no container and lose no grant, take no cap off for a moment,
// and containers start again after each.
func TestRestartsDisturbNothing(t *testing.T) {
	e := beginWithAgent(t)
	pods := []*pod{
		e.create(podSpec{name: "always", restart: corev1.RestartPolicyAlways, containers: []container{
			{run: "exec gpuload --json --alloc 9GiB --hold 1h", limits: gibs(10)},
		}}),
		e.create(podSpec{name: "two", containers: []container{
			{name: "small", run: hold, limits: gibs(3)},
			{name: "large", run: hold, limits: gibs(20)},
		}}),
		e.create(one("half", percent(50), hold)),
		// A restarted kubelet takes an init container that has ended for one that is yet to start. It fails the pod
		// unless the agent has registered by then.
		e.create(podSpec{name: "init", containers: []container{{run: hold, limits: gibs(4)}},
			init: []container{{name: "before", run: "gpuload --json", limits: gibs(4)}}}),
	}
	for _, p := range pods {
		p.running()
	}
	before := e.heldBy(pods...)
	for name, h := range before {
		if h.restarts != 0 || h.level != "driver" || h.caps == "" {
			t.Errorf("%s: %+v", name, h)
		}
	}
	steps := []struct {
		name string
		do   func()
	}{
		{"agent replaced", e.replaceAgent},
		{"agent killed", e.killAgent},
		// What runs is then known from what NRI and containerd tell of it, and from the driver.
		{"agent away, and its record lost", func() {
			e.sendAway()
			if r := e.node.in("rm", "/run/kerf/record.json", "/run/kerf/record.previous.json"); r.err != nil {
				t.Fatal(r)
			}
			e.bringBack()
		}},
		{"kubelet restarted", func() { e.node.restart(t, "kubelet") }},
		{"containerd restarted", func() { e.node.restart(t, "containerd") }},
		{"kubelet killed", func() { e.node.do(t, "kill", "kubelet", "KILL"); e.node.do(t, "up") }},
		{"containerd killed", func() { e.node.do(t, "kill", "containerd", "KILL"); e.node.do(t, "up") }},
		{"agent replaced while containerd is killed", func() {
			e.deleteAgent()
			e.node.do(t, "kill", "containerd", "KILL")
			e.node.do(t, "up")
			e.waitForAgent()
		}},
	}
	for i, step := range steps {
		t.Logf("step: %s", step.name)
		step.do()
		after := e.create(one(fmt.Sprintf("after-%d", i), gibs(5), "exec gpuload --json"))
		after.phase(corev1.PodSucceeded)
		if l := after.loads("main", 1)[0]; l.Total == nil || *l.Total != 5*gib {
			t.Errorf("%s: a pod after it: %v", step.name, l)
		}
		after.delete()
		e.waitForAgent()
		e.wantSame(before, pods...)
		e.neverUncapped(pods...)
		if t.Failed() {
			t.Fatalf("after step: %s", step.name)
		}
	}
	e.wantHeld(pods[0], "main", share(10*gib, 0))
	e.wantHeld(pods[1], "small", share(3*gib, 0))
	e.wantHeld(pods[1], "large", share(20*gib, 0))
	e.wantHeld(pods[2], "main", share(e.node.gpus(t)[0].shareOf(50), 50))
	if l := pods[0].loads("main", 1); len(l) != 1 || l[0].Error != nil {
		t.Errorf("the load was disturbed: %v", l)
	}
}

// A power loss ends all containers. If kubelet comes back before the agent, it refuses the pods that had devices, as
// with every device plugin, and their controller makes new ones. These get their caps, and what the old ones had is
// free again. MIG instances are gone, and the creation of one was interrupted. The agent creates the layout again
// before the node offers instances, and the others for the pods that request them again.
func TestNodeReboots(t *testing.T) {
	e := beginWithAgent(t)
	cut := e.cutForReboot()
	e.createReplicas("replica", 2, podSpec{containers: []container{
		{run: "exec gpuload --json --alloc 9GiB --hold 1h", limits: gibs(10)},
	}})
	never := e.create(one("never", gibs(10), hold))
	before := e.replicas("replica", 2)
	never.running()
	cut.leaveOpen()
	up := e.powerCut()
	cut.rebooted()
	if r := <-up; r.err != nil {
		t.Fatalf("node.sh up: %v", r)
	}
	never.phase(corev1.PodFailed)
	e.waitForAgent()
	after := e.replicas("replica", 2, before...)
	if err := e.uncappedError(); err != nil {
		t.Error(err)
	}
	for _, p := range after {
		if l := p.loads("main", 1)[0]; l.Error != nil || l.Allocated != 9*gib {
			t.Errorf("%s after the reboot: %v", p.name, l)
		}
		e.wantHeld(p, "main", share(10*gib, 0))
	}
	cut.runsAgain()
	eventually(e, "release of what the pods of before held", func() error {
		var kept []string
		for _, g := range e.picture().Grants {
			if g.Namespace == e.namespace && !slices.ContainsFunc(slices.Concat(after, cut.after),
				func(p *pod) bool { return p.name == g.Pod }) {
				kept = append(kept, g.Pod)
			}
		}
		if len(kept) > 0 {
			return fmt.Errorf("grants of %q are left; before the reboot there were %s, after it %s", kept,
				names(before), names(after))
		}
		return nil
	})
}
