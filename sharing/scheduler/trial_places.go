// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// All are placements on a node that differ in what is left free, the scheduler's choice first. For a pod whose
// containers have several requests there is only that.
func (t *Trial) All(w PodRequest, i int) [][]Planned {
	first, ok := t.Fit(w, i)
	if !ok {
		return nil
	}
	out := [][]Planned{first}
	if len(w.Containers) != 1 {
		return out
	}
	s := t.read(i)
	r, err := t.judge.resolved(t.node(i), w.Containers[0])
	if err != nil {
		return out
	}
	add := func(p sharing.Placement) { out = append(out, []Planned{{w.Containers[0].Container, p}}) }
	if r.Kind == sharing.KindMIG {
		s.instances(r, add)
		return out
	}
	var fit []allocator.GPUState
	for _, g := range s.gpus {
		if allocator.Fit(g, one(r)).Fits() {
			fit = append(fit, g)
		}
	}
	seen := map[string]bool{}
	subsets(fit, r.GPUs, nil, func(on []allocator.GPUState) {
		var key strings.Builder
		for _, g := range on {
			fmt.Fprint(&key, g.FreeMemory, g.FreePercent, g.ShareCount, g.GPU.Bookable(), g.GPU.Model, ";")
		}
		if p, err := allocator.Choose(on, r); err == nil && !seen[key.String()] {
			seen[key.String()] = true
			add(p)
		}
	})
	return out
}

// subsets calls do with each choice of so many GPUs.
func subsets(gpus []allocator.GPUState, count int, chosen []allocator.GPUState, do func([]allocator.GPUState)) {
	if count == 0 {
		do(slices.Clone(chosen))
		return
	}
	for i := 0; i+count <= len(gpus); i++ {
		subsets(gpus[i+1:], count-1, append(chosen, gpus[i]), do)
	}
}

// instances calls add with each free place of a MIG instance for the request.
func (s *state) instances(r sharing.Request, add func(sharing.Placement)) {
	for _, g := range s.gpus {
		c := s.migGPU(g.GPU.Ref())
		p, ok := c.profile(r)
		if !ok || c.trouble != "" || g.GPU.Health != sharing.HealthOK || !r.Admits(g.GPU) {
			continue
		}
		for _, start := range starts(c, p) {
			if at, ok := s.start(g.GPU.Ref(), p, start); ok {
				add(sharing.Placement{instanceShare(g.GPU.Ref(), p, at)})
			}
		}
	}
}

func starts(c *migGPU, p mig.Profile) []int {
	if !c.fixed {
		return p.Starts
	}
	var out []int
	for _, at := range c.layout {
		if at.Profile == p.ID {
			out = append(out, at.Start)
		}
	}
	return out
}
