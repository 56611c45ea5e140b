// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kerf-gpu/kerf/sharing"
)

var gpu = sharing.GPURef{UUID: "GPU-1"}

func quiet(steps uint64, held sharing.Bytes) Count {
	return Count{Steps: steps, Quiet: true, Used: map[sharing.GPURef]sharing.Bytes{gpu: held}}
}

// one is a check in which one process counts, and the driver reports used for it.
func one(before, after Count, used sharing.Bytes) Sample {
	p := Process{7, 1}
	return Sample{
		Before: map[Process]Count{p: before}, After: map[Process]Count{p: after}, Listed: []sharing.GPURef{gpu},
		Uses: []Use{{p, gpu, used, true}},
	}
}

func TestOverheadOfAProcess(t *testing.T) {
	at := func(steps uint64, held, used sharing.Bytes) Sample {
		return one(quiet(steps, held), quiet(steps, held), used)
	}
	managed := func(held, managed, used sharing.Bytes) Sample {
		c := quiet(1, held)
		c.Managed = map[sharing.GPURef]sharing.Bytes{gpu: managed}
		return one(c, c, used)
	}
	busy := quiet(3, 0)
	busy.Quiet = false
	unreported, unknown, unlisted := at(1, 10, 90), at(1, 10, 90), at(1, 10, 0)
	unreported.Listed, unknown.Uses[0].Known, unlisted.Uses = nil, false, nil
	for name, tt := range map[string]struct {
		samples []Sample
		want    []sharing.Bytes
	}{
		"what is beyond the count":         {[]Sample{at(1, 10, 40)}, []sharing.Bytes{30}},
		"managed memory is in no list":     {[]Sample{managed(50, 40, 30)}, []sharing.Bytes{20}},
		"more managed memory than counted": {[]Sample{managed(50, 60, 30)}, []sharing.Bytes{30}},
		"never negative":                   {[]Sample{at(1, 50, 40)}, []sharing.Bytes{0}},
		"more at once":                     {[]Sample{at(1, 10, 40), at(1, 10, 60)}, []sharing.Bytes{30, 50}},
		"less at the second sample": {[]Sample{at(1, 10, 40), at(3, 30, 40), at(3, 30, 40)},
			[]sharing.Bytes{30, 30, 10}},
		"the larger of two": {[]Sample{at(1, 0, 40), at(3, 0, 10), at(5, 0, 25), at(5, 0, 20),
			at(5, 0, 20)}, []sharing.Bytes{40, 40, 25, 25, 20}},
		"an allocation on its way": {[]Sample{at(1, 10, 40), at(2, 20, 40), at(2, 20, 50)},
			[]sharing.Bytes{30, 30, 30}},
		"at a counter meanwhile": {[]Sample{at(1, 10, 40), one(quiet(1, 10), quiet(2, 10), 90)},
			[]sharing.Bytes{30, 30}},
		"at a counter before": {[]Sample{at(1, 10, 40), one(busy, quiet(3, 10), 90)},
			[]sharing.Bytes{30, 30}},
		"at a counter after": {[]Sample{at(1, 10, 40), one(quiet(3, 0), busy, 90)},
			[]sharing.Bytes{30, 30}},
		"the driver does not answer":        {[]Sample{at(1, 10, 40), unreported}, []sharing.Bytes{30, 30}},
		"the driver does not tell of it":    {[]Sample{at(1, 10, 40), unknown}, []sharing.Bytes{30, 30}},
		"off the GPU, at the second sample": {[]Sample{at(1, 10, 40), unlisted, unlisted}, []sharing.Bytes{30, 30, 0}},
		"with the process goes its excess": {[]Sample{at(1, 10, 40), {Listed: []sharing.GPURef{gpu}}},
			[]sharing.Bytes{30, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var a Account
			for i, l := range tt.samples {
				if got := a.Step(l).Overhead[gpu]; got != tt.want[i] {
					t.Errorf("sample %d: %d, want %d", i, got, tt.want[i])
				}
			}
		})
	}
}

// Only a process that has just made one context, for which it took no more than the bound, tells how little one takes.
func TestLeast(t *testing.T) {
	const bound = 60
	small, large, two, old := Process{7, 1}, Process{8, 1}, Process{9, 1}, Process{10, 1}
	count := func(waiting sharing.Bytes) Count {
		c := quiet(1, 100)
		c.Waiting = map[sharing.GPURef]sharing.Bytes{gpu: waiting}
		return c
	}
	counts := map[Process]Count{small: count(bound), large: count(30), two: count(2 * bound), old: count(0)}
	l := Sample{
		Before: counts, After: counts, Listed: []sharing.GPURef{gpu},
		Bound: map[sharing.GPURef]sharing.Bytes{gpu: bound},
		Uses:  []Use{{small, gpu, 75, true}, {large, gpu, 110, true}, {two, gpu, 45, true}, {old, gpu, 105, true}},
	}
	var a Account
	if d := cmp.Diff(map[sharing.GPURef]sharing.Bytes{gpu: 35}, a.Step(l).Least); d != "" {
		t.Error(d)
	}
	for name, change := range map[string]func(*Sample){
		"of a driver that does not answer":           func(l *Sample) { l.Listed = nil },
		"where the size is known":                    func(l *Sample) { l.Bound = nil },
		"of processes that the driver does not list": func(l *Sample) { l.Uses = nil },
	} {
		l := l
		change(&l)
		var a Account
		if d := a.Step(l).Least; len(d) != 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
}

// The driver reports a context once it exists. Then the count for it does not matter, and it is gone with the context.
func TestContextsThatWereCounted(t *testing.T) {
	const made, extra, all = 30, 10, 100
	count := func(held, waiting sharing.Bytes) Count {
		c := quiet(1, held)
		c.Waiting = map[sharing.GPURef]sharing.Bytes{gpu: waiting}
		return c
	}
	at := func(held, waiting, used sharing.Bytes) Sample {
		return one(count(held, waiting), count(held, waiting), used)
	}
	gone, unreported, moving := at(all, made, 0), at(all, made, all), at(all, made, all)
	gone.Uses, unreported.Listed = nil, nil
	moving.Before = map[Process]Count{{7, 1}: {Steps: 0, Quiet: true}}
	settled := []Settled{{Process{7, 1}, gpu, made}}
	for name, tt := range map[string]struct {
		samples  []Sample
		overhead []sharing.Bytes
		settled  [][]Settled
	}{
		"as counted": {[]Sample{at(all, made, all)}, []sharing.Bytes{made}, [][]Settled{settled}},
		"more than was counted": {[]Sample{at(all, made, all+extra)}, []sharing.Bytes{made + extra},
			[][]Settled{settled}},
		"less than was counted": {[]Sample{at(all, made, all-extra)}, []sharing.Bytes{made - extra},
			[][]Settled{settled}},
		"no answer of the driver": {[]Sample{unreported}, []sharing.Bytes{0}, [][]Settled{nil}},
		"at a counter meanwhile":  {[]Sample{moving}, []sharing.Bytes{0}, [][]Settled{nil}},
		"gone at the second sample": {[]Sample{gone, gone, at(all-made, 0, 0)}, []sharing.Bytes{0, 0, 0},
			[][]Settled{nil, settled, nil}},
		"not shown yet": {[]Sample{gone, at(all, made, all)}, []sharing.Bytes{0, made},
			[][]Settled{nil, settled}},
		"a second one, afterwards": {[]Sample{at(all, made, all), at(all, made, all+made)},
			[]sharing.Bytes{made, 2 * made}, [][]Settled{settled, settled}},
	} {
		t.Run(name, func(t *testing.T) {
			var a Account
			for i, l := range tt.samples {
				got := a.Step(l)
				if d := cmp.Diff(tt.settled[i], got.Settled, cmpopts.EquateEmpty()); d != "" ||
					got.Overhead[gpu] != tt.overhead[i] {
					t.Errorf("sample %d: overhead %d, want %d; settled (-want +got):\n%s", i, got.Overhead[gpu],
						tt.overhead[i], d)
				}
			}
		})
	}
}

func TestProcessesThatDoNotCount(t *testing.T) {
	silent, fresh := Process{9, 5}, Process{9, 6}
	sample := func(p Process, known bool) Sample {
		return Sample{Listed: []sharing.GPURef{gpu}, Uses: []Use{{p, gpu, 40, known}}}
	}
	counted := sample(fresh, true)
	counted.After = map[Process]Count{fresh: quiet(0, 0)}
	var a Account
	for i, tt := range []struct {
		sample Sample
		want   Result
	}{
		{sample(silent, true), Result{Overhead: map[sharing.GPURef]sharing.Bytes{gpu: 40}}},
		{sample(silent, true), Result{
			Overhead: map[sharing.GPURef]sharing.Bytes{gpu: 40}, Uncounted: []Process{silent},
		}},
		{sample(fresh, true), Result{Overhead: map[sharing.GPURef]sharing.Bytes{gpu: 40}}}, // took over the pid
		{counted, Result{Overhead: map[sharing.GPURef]sharing.Bytes{}}},                    // has begun to count
		{sample(fresh, true), Result{Overhead: map[sharing.GPURef]sharing.Bytes{gpu: 40}}},
	} {
		if d := cmp.Diff(tt.want, a.Step(tt.sample), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("sample %d (-want +got):\n%s", i, d)
		}
	}
	huge := Sample{Uses: []Use{{silent, gpu, 1<<64 - 1, true}, {fresh, gpu, 7, true}}}
	if got := a.Step(huge).Overhead[gpu]; got != 1<<64-1 {
		t.Errorf("a sum past the end is %d", got)
	}
}

// program is a process in the middle of what libkerf does: reserve, ask the driver, and the other way round.
type program struct {
	count Count
	// overhead is what the driver holds for it beyond, and asked what it holds of what was asked for.
	overhead, asked sharing.Bytes
	// pending is an allocation that is reserved, or a free that is not returned yet.
	pending  sharing.Bytes
	next     int
	midCount bool
	// making is what is reserved for a context that is being made, and waiting what it has handed over since.
	making, waiting sharing.Bytes
}

// Where it stands between two steps.
const (
	idle = iota
	reserved
	allocated
	freeing
)

func (p *program) step(rnd *rand.Rand) {
	if p.midCount {
		p.midCount, p.count.Quiet = false, true
		return
	}
	at := func(change sharing.Bytes, plus bool) {
		p.count.Steps++
		p.count.Quiet, p.midCount = false, true
		if plus {
			p.count.Used[gpu] += change
		} else {
			p.count.Used[gpu] -= change
		}
	}
	switch p.next {
	case idle:
		if p.making == 0 && rnd.IntN(8) == 0 {
			p.making = sharing.Bytes(1 + rnd.IntN(50))
			at(p.making, true)
			return
		}
		if p.making > 0 { // the driver has made all of it, or more
			p.overhead += p.making + sharing.Bytes(rnd.IntN(5))
			p.count.Steps++
			p.waiting += p.making
			p.making = 0
			return
		}
		p.pending = sharing.Bytes(1 + rnd.IntN(100))
		at(p.pending, true)
		p.next = reserved
	case reserved:
		p.asked += p.pending
		p.next = allocated
	case allocated:
		if rnd.IntN(3) == 0 {
			p.overhead += sharing.Bytes(rnd.IntN(20)) // a module is loaded, a heap grows
		}
		p.asked -= p.pending
		p.next = freeing
	case freeing:
		at(p.pending, false)
		p.next = idle
	}
}

func (p *program) read() Count {
	c := p.count
	c.Used = map[sharing.GPURef]sharing.Bytes{gpu: c.Used[gpu]}
	c.Waiting = map[sharing.GPURef]sharing.Bytes{gpu: p.waiting}
	c.Quiet = c.Quiet && p.making == 0
	return c
}

// Programs allocate and free at any moment, between any two readings. The computed overhead is never above the truth,
// and equals it two checks after they have paused.
func TestOverheadProperty(t *testing.T) {
	settled := 0
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		programs := map[Process]*program{}
		for i := range 1 + rnd.IntN(4) {
			programs[Process{10 + i, 1}] = &program{count: quiet(0, 0), overhead: sharing.Bytes(rnd.IntN(500))}
		}
		var order []Process
		for i := range len(programs) {
			order = append(order, Process{10 + i, 1})
		}
		run := func(paused bool) {
			for range rnd.IntN(6) {
				if p := programs[order[rnd.IntN(len(order))]]; !paused {
					p.step(rnd)
				}
			}
		}
		var a Account
		for sample := range 60 {
			paused := sample%20 >= 15
			for p := range programs {
				for paused && (programs[p].midCount || programs[p].making > 0) {
					programs[p].step(rnd)
				}
			}
			l := Sample{Before: map[Process]Count{}, After: map[Process]Count{}, Listed: []sharing.GPURef{gpu}}
			for _, p := range order {
				l.Before[p] = programs[p].read()
				run(paused)
			}
			for _, p := range order {
				l.Uses = append(l.Uses, Use{p, gpu, programs[p].overhead + programs[p].asked, true})
				run(paused)
			}
			for _, p := range order {
				l.After[p] = programs[p].read()
				run(paused)
			}
			res := a.Step(l)
			got := res.Overhead[gpu]
			for _, s := range res.Settled {
				p := programs[s.Process]
				if p.waiting == s.Bytes { // else it has made another one meanwhile
					p.waiting = 0
					p.count.Used[gpu] -= s.Bytes
				}
				settled++
			}
			var truth, least sharing.Bytes
			for _, p := range programs {
				truth += p.overhead
				least += (p.overhead + p.asked).SubFloor(p.count.Used[gpu])
			}
			if got > truth {
				t.Fatalf("seed %d, sample %d: overhead %d, want at most %d", seed, sample, got, truth)
			}
			if sample%20 == 19 && got < least {
				t.Fatalf("seed %d, sample %d: overhead %d after a pause, want at least %d", seed, sample, got, least)
			}
		}
	}
	if settled < 1000 {
		t.Errorf("%d contexts were taken over, which tests nothing", settled)
	}
}

// What a process holds that has ended is overhead, and stays where the driver does not tell.
func TestEnded(t *testing.T) {
	other := sharing.GPURef{UUID: "h"}
	var a Account
	at := func(gpu sharing.GPURef, n sharing.Bytes) map[sharing.GPURef]sharing.Bytes {
		return map[sharing.GPURef]sharing.Bytes{gpu: n}
	}
	for i, step := range []struct {
		sample Sample
		want   map[sharing.GPURef]sharing.Bytes
	}{
		{Sample{Listed: []sharing.GPURef{gpu, other}, Ended: at(gpu, 5)}, at(gpu, 5)},
		{Sample{Listed: []sharing.GPURef{other}}, at(gpu, 5)},
		{Sample{Listed: []sharing.GPURef{gpu, other}, Ended: at(gpu, 3)}, at(gpu, 3)},
		{Sample{Listed: []sharing.GPURef{gpu}, Ended: at(gpu, 3), Uses: []Use{{Process{1, 1}, gpu, 4, true}}},
			at(gpu, 7)},
		{Sample{Listed: []sharing.GPURef{gpu}}, map[sharing.GPURef]sharing.Bytes{}},
	} {
		if got := a.Step(step.sample); !maps.Equal(got.Overhead, step.want) || len(got.Uncounted) > 0 {
			t.Errorf("sample %d: %+v, want %v", i, got, step.want)
		}
	}
}
