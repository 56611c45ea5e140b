// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sim/machine"
)

func table(t testing.TB, name string) *mig.Table {
	t.Helper()
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []mig.Profile
	for _, p := range m.GPUs[0].Model.Profiles {
		list = append(list, mig.Profile{
			ID: int(p.ID), Name: p.Name, Compute: p.Slices, Memory: p.Memory, SMs: int(p.SMs), MaxInstances: p.Max,
			Size: p.Size, Starts: p.Starts,
			Engines: mig.Engines{Decoders: int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs),
				OFAs: int(p.OFAs)},
		})
	}
	table, err := mig.NewTable(list)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// gpu is a driver in miniature: it does one call after the other and refuses what a driver refuses.
type gpu struct {
	table *mig.Table
	have  []plan.Instance
	next  int // id for the next instance
}

// random is a GPU with instances of all kinds: ours and not, idle and busy, whole and half made.
func random(table *mig.Table, r *rand.Rand) *gpu {
	g := &gpu{table: table, next: 1}
	for range r.IntN(9) {
		places := table.Places(g.occupancy(nil))
		if len(places) == 0 {
			break
		}
		g.create(places[r.IntN(len(places))])
		in := &g.have[len(g.have)-1]
		in.Managed = r.IntN(4) > 0
		switch n := r.IntN(10); {
		case n < 6:
			in.CIs, in.Ready = []int{0}, true
		case n == 6:
			in.CIs = []int{0, 1}
		}
		if in.Ready && r.IntN(2) == 0 {
			in.Users = []string{fmt.Sprintf("pod %d", in.GI)}
		}
	}
	return g
}

func (g *gpu) create(p mig.Place) {
	g.have = append(g.have, plan.Instance{Place: p, GI: g.next, Managed: true})
	g.next++
}

// occupancy is what the instances take; t fails if they cannot be together.
func (g *gpu) occupancy(t testing.TB) mig.Occupancy {
	places := make([]mig.Place, len(g.have))
	for i, in := range g.have {
		places[i] = in.Place
	}
	o, err := g.table.Occupy(places)
	if err != nil && t != nil {
		t.Fatalf("not a legal set: %v", err)
	}
	return o
}

// do is one call; an error is what no plan may lead to.
func (g *gpu) do(s plan.Step) error {
	i := slices.IndexFunc(g.have, func(in plan.Instance) bool { return in.Place == s.Place })
	if s.Op == plan.CreateGI {
		if !g.table.Fits(g.occupancy(nil), s.Place) {
			return fmt.Errorf("%v: no room", s)
		}
		g.create(s.Place)
		return nil
	}
	if i < 0 {
		return fmt.Errorf("%v: no instance", s)
	}
	in := &g.have[i]
	switch {
	case !in.Managed:
		return fmt.Errorf("%v: is foreign", s)
	case len(in.Users) > 0:
		return fmt.Errorf("%v: is busy", s)
	case s.GI >= 0 && s.GI != in.GI:
		return fmt.Errorf("%v: is instance %d", s, in.GI)
	}
	switch s.Op {
	case plan.DestroyCI:
		n := slices.Index(in.CIs, s.CI)
		if n < 0 {
			return fmt.Errorf("%v: has no such compute instance", s)
		}
		in.CIs, in.Ready = slices.Delete(slices.Clone(in.CIs), n, n+1), false
	case plan.DestroyGI:
		if len(in.CIs) > 0 {
			return fmt.Errorf("%v: has compute instances", s)
		}
		g.have = slices.Delete(g.have, i, i+1)
	case plan.CreateCI:
		if len(in.CIs) > 0 {
			return fmt.Errorf("%v: has a compute instance", s)
		}
		in.CIs, in.Ready = []int{0}, true
	case plan.CreateGI: // above
	}
	return nil
}

func (g *gpu) clone() *gpu {
	c := *g
	c.have = slices.Clone(g.have)
	return &c
}

// key tells two GPUs apart, but for ids.
func (g *gpu) key() string {
	var parts []string
	for _, in := range g.have {
		parts = append(parts, fmt.Sprintf("%v %d %v %v %v", in.Place, len(in.CIs), in.Ready, in.Managed, in.Users))
	}
	slices.Sort(parts)
	return strings.Join(parts, ";")
}

// serves reports whether each of the wishes has a separate instance; for a layout also a busy one.
func (g *gpu) serves(wishes []plan.Wish, exact bool) bool {
	var try func(n int, used map[int]bool) bool
	try = func(n int, used map[int]bool) bool {
		if n == len(wishes) {
			return true
		}
		for i, in := range g.have {
			w := wishes[n]
			if used[i] || !in.Managed || !in.Ready || !exact && len(in.Users) > 0 || in.Place.Profile != w.Profile ||
				w.Start != plan.Any && w.Start != in.Place.Start {
				continue
			}
			used[i] = true
			if try(n+1, used) {
				return true
			}
			delete(used, i)
		}
		return false
	}
	return try(0, map[int]bool{})
}

// shortest is the least number of calls after which the wishes are served, by trying all that can be of use; -1: never.
func (g *gpu) shortest(wishes []plan.Wish) int {
	return g.least(wishes, func(s plan.Step) bool {
		return s.Op != plan.CreateGI && s.Op != plan.CreateCI || wanted(wishes, s.Place)
	})
}

// wanted reports whether an instance there could serve one of the wishes. What is made elsewhere only takes room:
// without the calls that make it, what is left of any way is one too, and shorter.
func wanted(wishes []plan.Wish, at mig.Place) bool {
	return slices.ContainsFunc(wishes, func(w plan.Wish) bool {
		return w.Profile == at.Profile && (w.Start == plan.Any || w.Start == at.Start)
	})
}

// least is shortest with the calls that try admits.
func (g *gpu) least(wishes []plan.Wish, try func(plan.Step) bool) int {
	seen := map[string]bool{g.key(): true}
	for level, steps := []*gpu{g}, 0; len(level) > 0; steps++ {
		var after []*gpu
		for _, at := range level {
			if at.serves(wishes, false) {
				return steps
			}
			for _, s := range at.calls() {
				if !try(s) {
					continue
				}
				c := at.clone()
				if c.do(s) == nil && !seen[c.key()] {
					seen[c.key()] = true
					after = append(after, c)
				}
			}
		}
		level = after
	}
	return -1
}

// calls are all that might be done.
func (g *gpu) calls() []plan.Step {
	var list []plan.Step
	for _, in := range g.have {
		for _, ci := range in.CIs {
			list = append(list, plan.Step{Op: plan.DestroyCI, Place: in.Place, GI: in.GI, CI: ci})
		}
		list = append(list, plan.Step{Op: plan.DestroyGI, Place: in.Place, GI: in.GI, CI: -1},
			plan.Step{Op: plan.CreateCI, Place: in.Place, GI: in.GI, CI: -1})
	}
	for _, p := range g.table.Places(g.occupancy(nil)) {
		list = append(list, plan.Step{Op: plan.CreateGI, Place: p, GI: -1, CI: -1})
	}
	return list
}

func wishes(table *mig.Table, r *rand.Rand, most int) []plan.Wish {
	profiles := table.Profiles()
	var list []plan.Wish
	for i := range 1 + r.IntN(most) {
		p := profiles[r.IntN(len(profiles))]
		w := plan.Wish{Profile: p.ID, Start: plan.Any, For: fmt.Sprintf("wish of %d", i)}
		if r.IntN(5) == 0 {
			w.Start = p.Starts[r.IntN(len(p.Starts))]
		}
		list = append(list, w)
	}
	return list
}
