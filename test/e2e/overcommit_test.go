// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A pool overcommits compute 2 times and memory 1.5 times. Idle GPUs are overcommitted at once, and a GPU with a share
// once that pod has ended. No pod exceeds its own cap, but the GPU can be full before a pod reaches its cap. A pod that
// demands that neighbors take nothing from it gets none.
func TestOvercommit(t *testing.T) {
	e := beginWithAgent(t)
	full, gpus, rules := e.allOffers(), e.node.gpus(t), e.readRules()
	g := gpus[0]
	usable := int64((g.Memory - g.Reserved) / gib)
	early := e.create(one("early", gibs(10), hold))
	early.running()
	t.Cleanup(func() { // a GPU with a share stays as it is
		for _, p := range slices.Clone(e.pods) {
			p.delete()
		}
		e.writeRules(rules)
		e.offersBecome(full)
	})
	e.writeRules(e.changedRules("    onOverCap: kill\n",
		"    onOverCap: kill\n    overcommit: {compute: 2, memory: 1.5}\n"))
	over := func(n int) offered {
		more := int64((g.Memory - g.Reserved) / 2 * 3 / gib)
		all, compute := int64(len(gpus)-n)*usable+int64(n)*more, int64(len(gpus)+n)*100
		return offered{"gpu-memory-gib": {all, all}, "gpu-percent": {compute, compute}, "gpu": full["gpu"]}
	}
	e.offersBecome(over(len(gpus) - 1)) // one is in use
	early.delete()
	e.offersBecome(over(len(gpus)))

	on := func(name string, limits map[string]string, run string) podSpec {
		s := one(name, limits, run)
		s.annotations = map[string]string{"kerf.dev/gpu-uuid": g.UUID}
		return s
	}
	first := e.create(on("first", both(gibs(50), percent(60)), "exec gpuload --json --alloc 49GiB --hold 1h"))
	first.loads("main", 1)
	second := e.create(on("second", both(gibs(50), percent(60)),
		"gpuload --json --alloc 25GiB; gpuload --json --alloc 51GiB; gpuload --json --alloc 49GiB; true"))
	second.phase(corev1.PodSucceeded)
	lines := second.loads("main", 3)
	if l := lines[0]; l.Error != nil || l.Total == nil || *l.Total != 50*gib {
		t.Errorf("what the GPU has left: %v", l)
	}
	for i, what := range map[int]string{1: "past its cap", 2: "past what the first left, and below its cap"} {
		if l := lines[i]; l.Error == nil {
			t.Errorf("%s: %v", what, l)
		}
	}
	for _, s := range e.picture().GPUs {
		if s.UUID == g.UUID && (s.Granted < 50*gib || s.Percent < 60) {
			t.Errorf("the GPU is shown as %+v", s)
		}
	}
	strict := on("strict", gibs(1), hold)
	strict.annotations["kerf.dev/min-enforcement"] = "driver"
	e.create(strict).event("1.5 times over")
	rest := usable*3/2 - 50 // after second, whose container has ended
	tooMuch := on("too-much", gibs(int(rest)+2), hold)
	if said := e.create(tooMuch).event("requested"); !strings.Contains(said, "free of") &&
		!strings.Contains(said, "in all") {
		t.Errorf("beyond the factor: %s", said)
	}
	e.create(on("rest", gibs(int(min(rest, usable))-1), hold)).running()
	if r := e.kerf("status"); r.err != nil || !strings.Contains(r.out, " x1.5") || !strings.Contains(r.out, "of 200%") {
		t.Errorf("%v", r)
	}
}
