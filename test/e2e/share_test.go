// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Half a GPU is half of its memory and of its compute; with an amount of memory the percent are compute alone.
func TestPercent(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	half := e.create(one("half", percent(50), hold))
	with := e.create(one("with-memory", both(gibs(6), percent(25)), hold))
	half.running()
	with.running()
	gpu := e.node.gpus(t)[0]
	g := e.wantHeld(half, "main", share(gpu.shareOf(50), 50))
	e.wantHeld(with, "main", share(6*gib, 25))
	for _, s := range e.picture().GPUs {
		if s.UUID == g.Shares[0].GPU && (s.Percent < 50 || s.Percent > 100 || s.Granted < g.Memory) {
			t.Errorf("the agent shows of its GPU %+v", s)
		}
	}
}

// Two containers of one pod have each their own cap.
func TestTwoContainers(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	p := e.create(podSpec{name: "two", containers: []container{
		{name: "small", run: "gpuload --json --alloc 4GiB; " + hold, limits: gibs(3)},
		{name: "large", run: "gpuload --json --alloc 4GiB; " + hold, limits: gibs(5)},
		{name: "none", run: "gpuload --json; " + hold},
	}})
	p.running()
	small, large := e.wantHeld(p, "small", share(3*gib, 0)), e.wantHeld(p, "large", share(5*gib, 0))
	if small.ID == large.ID {
		t.Errorf("both are grant %s", small.ID)
	}
	if l := p.loads("small", 1)[0]; l.Error == nil {
		t.Errorf("4 GiB in a container of 3: %v", l)
	}
	if l := p.loads("large", 1)[0]; l.Error != nil {
		t.Errorf("4 GiB in a container of 5: %v", l)
	}
	if sizes, files := p.view("none"); len(sizes)+len(files) > 0 {
		t.Errorf("the container that requests nothing sees %d, %q", sizes, files)
	}
}

// An annotation divides the amount over two GPUs, of which each carries a half.
func TestOverTwoGPUs(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	spec := one("pair", both(gibs(8), percent(20)), "for i in 0 1; do gpuload --json --gpu $i --alloc 5GiB; done; "+
		hold)
	spec.annotations = map[string]string{"gpu-count.kerf.dev/main": "2"}
	p := e.create(spec)
	p.running()
	e.wantHeld(p, "main", want{gpus: 2, memory: 4 * gib, percent: 10, level: "driver"})
	for i, l := range p.loads("main", 2) {
		if l.Error == nil {
			t.Errorf("5 GiB on its GPU %d, of which it has 4: %v", i, l)
		}
	}
	odd := one("odd", gibs(10), hold)
	odd.annotations = map[string]string{"kerf.dev/gpu-count": "3"}
	e.create(odd).event("10GiB", "3", "fix this in the pod")
}

// A pod that demands a level gets it or does not start, and its message lists the available levels.
func TestDemandedLevel(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	spec := one("driver", gibs(2), hold)
	spec.annotations = map[string]string{"kerf.dev/min-enforcement": "driver"}
	driver := e.create(spec)
	spec = one("hardware", gibs(2), hold)
	spec.annotations = map[string]string{"kerf.dev/min-enforcement": "hardware"}
	hardware := e.create(spec)
	// To demand less than the pool does lowers nothing.
	spec = one("none", gibs(2), hold)
	spec.annotations = map[string]string{"kerf.dev/min-enforcement": "none"}
	none := e.create(spec)
	driver.running()
	none.running()
	e.wantHeld(driver, "main", share(2*gib, 0))
	e.wantHeld(none, "main", share(2*gib, 0))
	hardware.event("hardware", "driver", "2GiB")
	if o := hardware.get(); o.Status.Phase != corev1.PodPending {
		t.Errorf("the pod that demands level hardware: %s", describe(o))
	}
}

// A profile of the administrator's gives what the pod does not say, and bounds what it says.
func TestProfile(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	spec := one("small", gibs(3), hold)
	spec.annotations = map[string]string{"kerf.dev/profile": "e2e-small"}
	small := e.create(spec)
	spec = one("large", gibs(5), hold)
	spec.annotations = map[string]string{"kerf.dev/profile": "e2e-small"}
	large := e.create(spec)
	spec = one("unknown", gibs(3), hold)
	spec.annotations = map[string]string{"kerf.dev/profile": "e2e-smal"}
	unknown := e.create(spec)
	small.running()
	e.wantHeld(small, "main", share(3*gib, 10))
	large.event("5GiB", "4GiB", `"e2e-small"`)
	unknown.event("e2e-smal", "e2e-pair, e2e-small")
}

// What a pod wishes of the choice of GPU is heard.
func TestWishes(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	gpus := e.node.gpus(t)
	spec := one("uuid", gibs(2), hold)
	spec.annotations = map[string]string{"kerf.dev/gpu-uuid": gpus[6].UUID}
	uuid := e.create(spec)
	spec = one("spread", gibs(2), hold)
	spec.annotations = map[string]string{"kerf.dev/gpu-count": "2", "kerf.dev/placement-policy": "spread",
		"kerf.dev/gpu-model": "*H100*,!*T4*"}
	spread := e.create(spec)
	spec = one("model", gibs(2), hold)
	spec.annotations = map[string]string{"kerf.dev/gpu-model": "*B200*"}
	model := e.create(spec)
	uuid.running()
	spread.running()
	if g := e.wantHeld(uuid, "main", share(2*gib, 0)); g.Shares[0].GPU != gpus[6].UUID {
		t.Errorf("it has GPU %s, and wished for %s", g.Shares[0].GPU, gpus[6].UUID)
	}
	e.wantHeld(spread, "main", want{gpus: 2, memory: gib, level: "driver"})
	model.event("B200", "H100")
	if o := model.get(); slices.ContainsFunc(containerStatuses(o),
		func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }) {
		t.Errorf("a container was made for a model that is not there: %s", describe(o))
	}
}
