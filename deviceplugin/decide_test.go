// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func sickIDs(l *list) []string {
	var out []string
	for _, d := range l.devices {
		if !d.healthy {
			out = append(out, d.id)
		}
	}
	return out
}

func lose(units []Unit, lost ...int) []Unit {
	for _, i := range lost {
		units[i].Lost = true
	}
	return units
}

func span(from, to int) []string {
	var out []string
	for n := from; n <= to; n++ {
		out = append(out, id(sharing.ResourceMemory, n))
	}
	return out
}

func TestDecide(t *testing.T) {
	type holds = map[sharing.ContainerRef][]string
	type sits = map[sharing.ContainerRef][]sharing.GPURef
	for name, tc := range map[string]struct {
		resource string
		units    []Unit
		held     holds
		on       sits
		unknown  bool
		hidden   bool
		ids      int
		sick     []string
	}{
		"all is well":            {units: gpus(0, 0), ids: 20},
		"one idle GPU lost":      {units: lose(gpus(0, 0), 1), ids: 20, sick: span(11, 20)},
		"all GPUs lost":          {units: lose(gpus(0, 0), 0, 1), ids: 20, sick: span(1, 20)},
		"all lost, holders lost": {units: lose(gpus(0, 0), 0, 1), unknown: true, ids: 20, sick: span(1, 20)},
		"holders not known":      {units: lose(gpus(0, 0), 1), unknown: true, ids: 20},
		"the holders' ids come first": {
			units: lose(gpus(0, 0), 1), ids: 20,
			held: holds{ref("a"): span(1, 4), ref("b"): span(20, 20)},
			on:   sits{ref("a"): {uuid(1)}, ref("b"): {uuid(0)}},
			sick: slices.Concat(span(1, 4), span(14, 19)),
		},
		"ten shares of a full GPU": {
			units: lose(gpus(0, 0), 0), ids: 20,
			held: func() holds {
				h := holds{}
				for i := range 10 {
					h[ref(fmt.Sprint("p", i))] = span(2*i+1, 2*i+1)
				}
				return h
			}(),
			on: func() sits {
				s := sits{}
				for i := range 10 {
					s[ref(fmt.Sprint("p", i))] = []sharing.GPURef{uuid(0)}
				}
				return s
			}(),
			sick: []string{"u0001", "u0003", "u0005", "u0007", "u0009", "u0011", "u0013", "u0015", "u0017", "u0019"},
		},
		"a container over two GPUs loses half": {
			units: lose(gpus(0, 0), 0), ids: 20,
			held: holds{ref("a"): span(1, 20)}, on: sits{ref("a"): {uuid(0), uuid(1)}},
			sick: span(1, 10),
		},
		"a container over two GPUs with an odd id": {
			units: lose(gpus(0, 0), 0), ids: 20,
			held: holds{ref("a"): span(1, 3)}, on: sits{ref("a"): {uuid(0), uuid(1)}},
			sick: slices.Concat(span(1, 2), span(13, 20)),
		},
		"held ids of sound GPUs stay, even when too few are free": {
			units: lose(gpus(0, 0), 0), ids: 20,
			held: holds{ref("a"): span(1, 15)}, on: sits{ref("a"): {uuid(1)}},
			sick: span(16, 20),
		},
		"held by a container without a grant": {
			units: lose(gpus(0, 0), 0), ids: 20,
			held: holds{ref("a"): span(11, 20)},
			sick: span(1, 10),
		},
		"withdrawn ids that are held stay": {
			units: gpus(0), ids: 12,
			held: holds{ref("a"): {"u0019", "u0007", "u0015"}}, on: sits{ref("a"): {uuid(0)}},
			sick: span(9, 10),
		},
		"a withdrawn resource keeps what is held": {
			units: gpus(0, 0), hidden: true, ids: 2,
			held: holds{ref("a"): {"u0019", "u0007"}}, on: sits{ref("a"): {uuid(0)}},
		},
		"a withdrawn resource on a lost GPU": {
			units: lose(gpus(0, 0), 0), hidden: true, ids: 2,
			held: holds{ref("a"): {"u0019", "u0007"}}, on: sits{ref("a"): {uuid(0)}},
			sick: []string{"u0007", "u0019"},
		},
		"ids of unowned making": {
			units: gpus(0), ids: 10,
			held: holds{ref("a"): {"frac-3", "u1", "u99999", "g01", ""}},
		},
		"percent": {resource: sharing.ResourcePercent, units: lose(gpus(0), 0), ids: 100, sick: span(1, 100)},
		"a whole GPU: an id of its node": {
			resource: sharing.ResourceGPU, units: lose(gpus(0, 0, 1, 1), 0), ids: 4, sick: []string{"g02"},
		},
		"a whole GPU: the holder's id, wherever": {
			resource: sharing.ResourceGPU, units: lose(gpus(0, 0, 1, 1), 0), ids: 4,
			held: holds{ref("a"): {"g04"}}, on: sits{ref("a"): {uuid(0)}}, sick: []string{"g04"},
		},
		"whole GPUs: the holder's id of the lost node": {
			resource: sharing.ResourceGPU, units: lose(gpus(0, 0, 1, 1), 3), ids: 4,
			held: holds{ref("a"): {"g01", "g04"}}, on: sits{ref("a"): {uuid(0), uuid(3)}}, sick: []string{"g04"},
		},
		"a whole GPU: another node's id when its own are held": {
			resource: sharing.ResourceGPU, units: lose(gpus(0, 0, 1, 1), 0), ids: 4,
			held: holds{ref("a"): {"g01"}, ref("b"): {"g02"}}, on: sits{ref("a"): {uuid(1)}, ref("b"): {uuid(2)}},
			sick: []string{"g04"},
		},
		"a GPU of each node": {
			resource: sharing.ResourceGPU, units: lose(gpus(0, 0, 1, 1), 0, 2), ids: 4, sick: []string{"g02", "g04"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{resource: sharing.ResourceMemory, held: tc.held, on: tc.on, known: !tc.unknown,
				inv: Inventory{Units: tc.units, Memory: !tc.hidden, Percent: true, Whole: true}}
			if tc.resource != "" {
				v.resource = tc.resource
			}
			l := decide(v)
			if len(l.devices) != tc.ids {
				t.Errorf("%d ids, want %d", len(l.devices), tc.ids)
			}
			if diff := cmp.Diff(tc.sick, sickIDs(l)); diff != "" {
				t.Errorf("unhealthy (-want +got):\n%s", diff)
			}
			v.was = l
			if again := decide(v); !again.equal(l) {
				t.Errorf("decided again: %v, then %v", sickIDs(l), sickIDs(again))
			}
		})
	}
}

// While a GPU is lost, containers on healthy GPUs come and go. That moves no id from one state to the other, and the
// ids that a lost container leaves stay unhealthy.
func TestDecideIsStable(t *testing.T) {
	v := view{resource: sharing.ResourceMemory, known: true, inv: Inventory{Units: lose(gpus(0, 0), 1), Memory: true}}
	v.held = map[sharing.ContainerRef][]string{ref("a"): span(1, 4)}
	v.on = map[sharing.ContainerRef][]sharing.GPURef{ref("a"): {uuid(1)}}
	v.was = decide(v)
	want := sickIDs(v.was)
	for i, held := range []map[sharing.ContainerRef][]string{
		{ref("a"): span(1, 4), ref("b"): span(5, 9)},
		{ref("b"): span(5, 9)},
		{},
		{ref("c"): span(10, 14)},
	} {
		v.held = held
		v.was = decide(v)
		if diff := cmp.Diff(want, sickIDs(v.was)); diff != "" {
			t.Errorf("step %d (-before +after):\n%s", i, diff)
		}
	}
	v.inv.Units = gpus(0, 0)
	if back := sickIDs(decide(v)); back != nil {
		t.Errorf("the GPU is back, and yet unhealthy: %v", back)
	}
}

const oneG = "kerf.dev/mig-1g.10gb"

// model is the rule again, by counting, without decide's code: how many ids of each container and how many free ids are
// unhealthy.
func model(v view) (ids int, struck map[sharing.ContainerRef]int, free int) {
	total, lost := 0, 0
	gone := map[sharing.GPURef]bool{}
	for _, u := range v.inv.Units {
		n := map[string]int{sharing.ResourceMemory: u.GiB, sharing.ResourcePercent: 100,
			sharing.ResourceGPU: 1}[v.resource]
		if u.InMIGMode {
			n = map[string]int{sharing.ResourceMemory: u.GiB, oneG: u.MIG[0].Count}[v.resource]
		}
		total += n
		if gone[u.GPU] = u.Lost; u.Lost {
			lost += n
		}
	}
	struck = map[sharing.ContainerRef]int{}
	holders, old, marked := 0, 0, 0
	for ref, held := range v.held {
		holders += len(held)
		for _, s := range held {
			if n, _ := number(v.resource, s); n > total {
				old++
			}
		}
		parts := 0
		for _, g := range v.on[ref] {
			if gone[g] {
				parts += len(held)
			}
		}
		if parts > 0 {
			struck[ref] = parts / len(v.on[ref])
			if parts%len(v.on[ref]) > 0 {
				struck[ref]++
			}
			marked += struck[ref]
		}
	}
	free = min(max(lost+old-marked, 0), total+old-holders)
	return total + old, struck, free
}

func TestDecideAgainstModel(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := view{resource: append(fixed(), oneG)[r.IntN(4)], known: true, inv: Inventory{Memory: true, Percent: true,
			Whole: true, MIG: true}}
		for i := range 1 + r.IntN(5) {
			u := Unit{GPU: uuid(i), NUMA: r.IntN(3) - 1, GiB: r.IntN(8)}
			if u.InMIGMode = r.IntN(3) == 0; u.InMIGMode {
				u.MIG = []Instances{{oneG, 1 + r.IntN(7)}, {"kerf.dev/mig-7g.80gb", 1}}
			}
			v.inv.Units = append(v.inv.Units, u)
		}
		var err error
		if v.inv, err = v.inv.checked(); err != nil {
			t.Fatal(err)
		}
		for step := range 6 {
			for i := range v.inv.Units {
				v.inv.Units[i].Lost = r.IntN(3) == 0
			}
			// Some ids are from a larger inventory.
			all := r.Perm(v.inv.total(v.resource) + r.IntN(4))
			v.held, v.on = map[sharing.ContainerRef][]string{}, map[sharing.ContainerRef][]sharing.GPURef{}
			for c := 0; len(all) > 0 && r.IntN(5) > 0; c++ {
				n := 1 + r.IntN(min(len(all), 6))
				for _, i := range all[:n] {
					v.held[ref(fmt.Sprint(c))] = append(v.held[ref(fmt.Sprint(c))], id(v.resource, i+1))
				}
				all = all[n:]
				for _, i := range r.Perm(len(v.inv.Units))[:r.IntN(min(3, len(v.inv.Units)+1))] {
					v.on[ref(fmt.Sprint(c))] = append(v.on[ref(fmt.Sprint(c))], v.inv.Units[i].GPU)
				}
			}
			l := decide(v)
			check(t, v, l)
			if t.Failed() {
				t.Fatalf("seed %d, step %d: %+v", seed, step, v)
			}
			v.was = l
		}
	}
}

func check(t *testing.T, v view, l *list) {
	t.Helper()
	ids, struck, free := model(v)
	if len(l.devices) != ids || !slices.IsSortedFunc(l.devices, func(a, b device) int { return a.number - b.number }) {
		t.Errorf("ids %v, want %d in order", l.devices, ids)
	}
	taken := 0
	for ref, held := range v.held {
		n := 0
		for _, s := range held {
			if l.unhealthy(s) {
				n++
			}
		}
		if n != struck[ref] {
			t.Errorf("%d ids of %s are unhealthy, want %d", n, ref, struck[ref])
		}
		taken += n
	}
	if n := len(sickIDs(l)) - taken; n != free {
		t.Errorf("%d free ids are unhealthy, want %d", n, free)
	}
	nearest(t, v, l)
	v.was = l
	if again := decide(v); !again.equal(l) {
		t.Errorf("decided again: %v, then %v", sickIDs(l), sickIDs(again))
	}
}

// nearest looks for an exchange that would be better. One NUMA node has too many free unhealthy ids, and another a free
// healthy one and too few unhealthy.
func nearest(t *testing.T, v view, l *list) {
	t.Helper()
	if v.resource != sharing.ResourceGPU {
		return
	}
	over := map[int]int{}
	for _, u := range v.inv.Units {
		if u.Lost {
			over[u.NUMA]--
		}
	}
	held := map[string]bool{}
	for _, ids := range v.held {
		for _, s := range ids {
			held[s] = true
		}
	}
	for _, d := range l.devices {
		if !d.healthy {
			over[d.numa]++
		}
	}
	for _, a := range l.devices {
		for _, b := range l.devices {
			if !held[a.id] && !held[b.id] && !a.healthy && b.healthy && over[a.numa] > 0 && over[b.numa] < 0 {
				t.Errorf("%s is unhealthy and %s is not: %v", a.id, b.id, l.devices)
			}
		}
	}
}
