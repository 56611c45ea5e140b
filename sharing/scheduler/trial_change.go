// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Take gives a pod a placement on a node.
func (t *Trial) Take(w PodRequest, i int, plan []Planned) {
	s := t.write(i)
	for _, c := range plan {
		s.take(w.UID, c.Placement)
	}
	t.free[i].CPU, t.free[i].Memory = t.free[i].CPU-w.CPU, t.free[i].Memory-min(w.Memory, t.free[i].Memory)
	t.forget(i)
}

// Release gives back what a pod has on a node.
func (t *Trial) Release(w PodRequest, i int) {
	t.write(i).release(w.UID)
	t.free[i].CPU, t.free[i].Memory = t.free[i].CPU+w.CPU, t.free[i].Memory+w.Memory
	t.forget(i)
}

// forget drops the copy of a node that has become as it was. The answers of such nodes are kept, those of copies not.
func (t *Trial) forget(i int) {
	now, was := t.states[i], t.judge.stateOf(t.node(i))
	if t.kept[i] > 0 || len(now.held) != len(was.held) {
		return
	}
	for uid, p := range now.held {
		if !slices.Equal(p, was.held[uid]) {
			return
		}
	}
	t.states[i] = nil
}

// Withhold says whether GPUs of a node take nothing new.
func (t *Trial) Withhold(i int, gpus []int, withheld bool) {
	s := t.write(i)
	for _, k := range gpus {
		g := &s.gpus[k].GPU
		switch ref := g.Ref(); {
		case withheld && g.Health == sharing.HealthOK && g.Cordoned == "":
			t.withheld[ref] = true
			t.kept[i]++
			g.Cordoned, g.Health = "defragmentation", sharing.HealthUnknown
		case !withheld && t.withheld[ref]:
			delete(t.withheld, ref)
			t.kept[i]--
			g.Cordoned, g.Health = "", sharing.HealthOK
		}
	}
	t.forget(i)
}
