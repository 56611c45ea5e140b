// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// offered is what kubelet offers of Kerf's resources, and what of it may be used.
type offered map[string][2]int64

func (e *testCase) offers() offered {
	e.Helper()
	all := offered{}
	for _, name := range []string{"gpu-memory-gib", "gpu-percent", "gpu"} {
		capacity, usable, err := e.capacity("kerf.dev/" + name)
		if err != nil {
			e.Fatal(err)
		}
		all[name] = [2]int64{capacity, usable}
	}
	return all
}

// allOffers are the offers once kubelet may use all that it has. After an earlier test, a GPU needs some time until
// it is healthy again, or out of MIG mode.
func (e *testCase) allOffers() offered {
	e.Helper()
	var all offered
	eventually(e, "offers of which all may be used", func() error {
		all = e.offers()
		for name, n := range all {
			if n[0] != n[1] {
				return fmt.Errorf("of %d %s %d may be used", n[0], name, n[1])
			}
		}
		if have, want := all["gpu"][0], int64(len(e.node.gpus(e.T))); have != want {
			return fmt.Errorf("%d of %d GPUs are offered", have, want)
		}
		return nil
	})
	return all
}

// without are the offers when the units of one GPU cannot be used. The capacity stays.
func (o offered) without(g simGPU) offered {
	all := offered{}
	for name, units := range map[string]int64{"gpu-memory-gib": int64((g.Memory - g.Reserved) / gib),
		"gpu-percent": 100, "gpu": 1} {
		all[name] = [2]int64{o[name][0], o[name][1] - units}
	}
	return all
}

// unusable are the offers when no unit can be used.
func (o offered) unusable() offered {
	all := offered{}
	for name, n := range o {
		all[name] = [2]int64{n[0], 0}
	}
	return all
}

func (e *testCase) offersBecome(want offered) {
	e.Helper()
	eventually(e, fmt.Sprintf("offers %v", want), func() error {
		if have := e.offers(); fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", have)
		}
		return nil
	})
}

// unitHealth waits until kubelet shows all units that a container of the pod has with that health.
func (p *pod) unitHealth(want corev1.ResourceHealthStatus) {
	p.e.Helper()
	p.until(fmt.Sprintf("units %s", want), func(o *corev1.Pod) error {
		n := 0
		for _, s := range o.Status.ContainerStatuses {
			for _, r := range s.AllocatedResourcesStatus {
				for _, unit := range r.Resources {
					if n++; unit.Health != want {
						return fmt.Errorf("unit %s of %s is %s", unit.ResourceID, r.Name, unit.Health)
					}
				}
			}
		}
		if n == 0 {
			return fmt.Errorf("it has no units")
		}
		return nil
	})
}

// A GPU that falls off the bus takes exactly its own units out of use, and those of its container are the
// unhealthy ones. Other containers feel nothing, new ones go elsewhere, and all comes back with the GPU: units and
// caps. A restart of the agent meanwhile changes none of it.
func TestLostGPU(t *testing.T) {
	e := beginWithAgent(t)
	full := e.allOffers()
	holder := e.create(one("holder", gibs(10), hold))
	holder.running()
	its := e.wantHeld(holder, "main", share(10*gib, 0))
	gpus := e.node.gpus(t)
	gpu := gpus[slices.IndexFunc(gpus, func(g simGPU) bool { return g.UUID == its.Shares[0].GPU })]
	neighbour := e.create(e.pinned("neighbour", (gpu.Index+1)%8, 20, "exec gpuload --json --alloc 9GiB --hold 1h"))
	neighbour.running()
	before, caps := e.heldBy(holder, neighbour), fmt.Sprint(holder.caps("main"))
	mend := func() { e.node.set(t, fmt.Sprintf("gpu=%d lost=false", gpu.Index)) }
	t.Cleanup(mend)
	e.node.set(t, fmt.Sprintf("gpu=%d lost=true", gpu.Index))
	e.offersBecome(full.without(gpu))
	holder.unitHealth(corev1.ResourceHealthStatusUnhealthy)
	neighbour.unitHealth(corev1.ResourceHealthStatusHealthy)
	for _, g := range e.picture().GPUs {
		if (g.UUID == gpu.UUID) != (g.Health == "lost") {
			t.Errorf("the agent shows GPU %d as %s (%s)", g.Index, g.Health, g.Reason)
		}
	}
	elsewhere := e.create(one("elsewhere", gibs(10), hold))
	elsewhere.running()
	if g := e.wantHeldBut(elsewhere, "main", share(10*gib, 0), gpu.UUID); g.Shares[0].GPU == gpu.UUID {
		t.Errorf("a new container got the lost GPU: %+v", g)
	}
	e.wantSame(map[string]held{"neighbour/main": before["neighbour/main"]}, neighbour)

	e.replaceAgent()
	e.offersBecome(full.without(gpu))
	holder.unitHealth(corev1.ResourceHealthStatusUnhealthy)
	if g := e.grantOf(holder, "main"); g.ID != its.ID || g.Memory != its.Memory {
		t.Errorf("after a restart of the agent the holder has %+v, had %+v", g, its)
	}
	after := e.create(one("after", gibs(10), hold))
	after.running()
	if g := e.wantHeldBut(after, "main", share(10*gib, 0), gpu.UUID); g.Shares[0].GPU == gpu.UUID {
		t.Errorf("a new container got the lost GPU: %+v", g)
	}

	mend()
	e.offersBecome(full)
	holder.unitHealth(corev1.ResourceHealthStatusHealthy)
	eventually(e, "caps on the GPU that is back", func() error {
		if now := fmt.Sprint(holder.caps("main")); now != caps {
			return fmt.Errorf("they are %s, were %s", now, caps)
		}
		return nil
	})
	e.wantSame(before, holder, neighbour)
	e.wantHeld(holder, "main", share(10*gib, 0))
	if l := neighbour.loads("main", 1); len(l) != 1 || l[0].Error != nil {
		t.Errorf("the neighbour's load: %v", l)
	}
	if l := e.create(e.pinnedTo(gpu.UUID, one("back", gibs(10), "exec gpuload --json --alloc 9GiB"))); l.phase(
		corev1.PodSucceeded) == nil {
		t.Error("the GPU that is back gives nothing")
	}
}
