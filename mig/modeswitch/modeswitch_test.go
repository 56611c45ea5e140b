// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package modeswitch

import (
	stdcmp "cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

const hold = 5 * time.Minute

func start() time.Time { return time.Unix(1e9, 0) }

// of is a need for so many of these GPUs.
func of(who string, on bool, count int, ids ...sharing.GPUID) Need {
	return Need{Who: who, Since: start(), On: on, Fits: func(turned []sharing.GPUID) bool {
		n := 0
		for _, id := range ids {
			if slices.Contains(turned, id) {
				n++
			}
		}
		return n >= count
	}}
}

func (n Need) since(d time.Duration) Need { n.Since = n.Since.Add(d); return n }

func (n Need) planned(ids ...sharing.GPUID) Need { n.Prefer = ids; return n }

func TestDecide(t *testing.T) {
	now := start().Add(time.Hour)
	long, short := now.Add(-hold), now.Add(-hold+time.Second)
	tests := map[string]struct {
		gpus  []GPU
		needs []Need
		want  Plan
	}{
		"no one asks": {gpus: []GPU{{ID: "a"}, {ID: "b", On: true}}},
		"an idle one goes to MIG": {
			gpus:  []GPU{{ID: "a", Busy: "is held by pod x"}, {ID: "b", Index: 1}},
			needs: []Need{of("pod y", true, 1, "a", "b")},
			want:  Plan{Switches: []Switch{{"b", true, "pod y"}}},
		},
		"and back": {
			gpus: []GPU{{ID: "a", On: true, SwitchedAt: long}}, needs: []Need{of("pod y", false, 1, "a")},
			want: Plan{Switches: []Switch{{"a", false, "pod y"}}},
		},
		"who has room by now needs nothing": {gpus: []GPU{{ID: "a"}}, needs: []Need{of("pod y", true, 0)}},
		"one for two that it has room for": {
			gpus: []GPU{{ID: "a"}, {ID: "b", Index: 1}}, needs: []Need{of("pod y", true, 1, "a", "b"),
				of("pod z", true, 1, "a", "b")},
			want: Plan{Switches: []Switch{{"a", true, "pod y"}}},
		},
		"two of which each needs another": {
			gpus: []GPU{{ID: "a"}, {ID: "b", Index: 1}}, needs: []Need{of("pod y", true, 1, "b"),
				of("pod z", true, 1, "a")},
			want: Plan{Switches: []Switch{{"b", true, "pod y"}, {"a", true, "pod z"}}},
		},
		"who waits longest is served": {
			gpus:  []GPU{{ID: "a", On: true}, {ID: "b", Index: 1}},
			needs: []Need{of("late", false, 1, "a", "b").since(time.Minute), of("early", true, 2, "a", "b")},
			want:  Plan{Switches: []Switch{{"a", false, "late"}}}, // the early one cannot be helped
		},
		"what was planned goes first": {
			gpus: []GPU{{ID: "a"}, {ID: "b", Index: 1}}, needs: []Need{of("pod y", true, 1, "a", "b").planned("b")},
			want: Plan{Switches: []Switch{{"b", true, "pod y"}}},
		},
		"no more than are needed": {
			gpus:  []GPU{{ID: "a"}, {ID: "b", Index: 1}, {ID: "c", Index: 2}},
			needs: []Need{of("pod y", true, 2, "b", "c")},
			want:  Plan{Switches: []Switch{{"b", true, "pod y"}, {"c", true, "pod y"}}},
		},
		"nothing in vain": {
			gpus:  []GPU{{ID: "a"}, {ID: "b", Index: 1, Busy: "is held by pod x"}},
			needs: []Need{of("pod y", true, 2, "a", "b")},
			want:  Plan{Pending: []Wait{{"pod y", "GPU 1 is held by pod x"}}},
		},
		"what no turn would help is none of ours": {gpus: []GPU{{ID: "a"}}, needs: []Need{of("pod y", true, 1, "c")}},
		"a mode is kept for a while": {
			gpus: []GPU{{ID: "a", On: true, SwitchedAt: short}}, needs: []Need{of("pod y", false, 1, "a")},
			want: Plan{Pending: []Wait{{"pod y", "GPU 0 changed its mode at " + short.Format(time.TimeOnly) +
				", and keeps it for 5m0s"}}},
		},
		"the one that changed longest ago": {
			gpus: []GPU{{ID: "a", SwitchedAt: long}, {ID: "b", Index: 1}}, needs: []Need{of("pod y", true, 1, "a",
				"b")},
			want: Plan{Switches: []Switch{{"b", true, "pod y"}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Decide(tt.gpus, tt.needs, hold, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// chance makes a node and who waits there.
func chance(r *rand.Rand, now time.Time) ([]GPU, []Need) {
	var gpus []GPU
	var ids []sharing.GPUID
	for i := range 1 + r.IntN(5) {
		g := GPU{ID: sharing.GPUID(fmt.Sprint(i)), Index: i, On: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			g.Busy = "is busy"
		}
		if r.IntN(2) == 0 {
			g.SwitchedAt = now.Add(-time.Duration(r.Int64N(int64(2 * hold))))
		}
		gpus, ids = append(gpus, g), append(ids, g.ID)
	}
	var needs []Need
	for i := range r.IntN(4) {
		on := r.IntN(2) == 0
		some := slices.DeleteFunc(slices.Clone(ids), func(sharing.GPUID) bool { return r.IntN(3) == 0 })
		needs = append(needs, of(fmt.Sprint("pod ", i), on, r.IntN(3), some...).since(time.Duration(r.IntN(3))))
	}
	return gpus, needs
}

// Against a model that tries every set of GPUs: each switched GPU may switch and is needed, the first waiting request
// is served if any set would do, and no set serves a request that has to wait.
func TestAgainstEverySet(t *testing.T) {
	turned, waited := 0, 0
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := start().Add(time.Hour)
		gpus, needs := chance(r, now)
		p := Decide(gpus, needs, hold, now)
		free := func(g GPU, on bool) bool {
			return g.On != on && g.Busy == "" && (g.SwitchedAt.IsZero() || now.Sub(g.SwitchedAt) >= hold)
		}
		for i, one := range p.Switches {
			g := gpus[slices.IndexFunc(gpus, func(g GPU) bool { return g.ID == one.GPU })]
			if !free(g, one.On) || slices.ContainsFunc(p.Switches[:i],
				func(o Switch) bool { return o.GPU == one.GPU }) {
				t.Fatalf("seed %d: %+v may not be turned: %+v", seed, g, p)
			}
			n := needs[slices.IndexFunc(needs, func(n Need) bool { return n.Who == one.For })]
			without := slices.DeleteFunc(p.to(one.On), func(id sharing.GPUID) bool { return id == one.GPU })
			if last := i+1 == len(p.Switches); last && n.Fits(without) {
				t.Fatalf("seed %d: %+v is turned in vain: %+v", seed, one, p)
			}
			turned++
		}
		slices.SortStableFunc(needs, func(a, b Need) int {
			return stdcmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Who, b.Who))
		})
		for i, n := range needs {
			some := anySet(n, gpus, free)
			reported := slices.ContainsFunc(p.Pending, func(w Wait) bool { return w.Who == n.Who })
			served := n.Fits(p.to(n.On))
			switch {
			case i == 0 && some != served:
				t.Fatalf("seed %d: the first is served: %v, and could be: %v: %+v", seed, served, some, p)
			case reported && served:
				t.Fatalf("seed %d: %s is served and asked to wait: %+v", seed, n.Who, p)
			case reported:
				waited++
			}
		}
	}
	if turned < 1000 || waited < 1000 {
		t.Errorf("%d turned, %d waited: too few to be a test", turned, waited)
	}
}

// anySet reports whether any set of the GPUs that may be turned answers the need.
func anySet(n Need, gpus []GPU, free func(GPU, bool) bool) bool {
	for set := range 1 << len(gpus) {
		var ids []sharing.GPUID
		ok := true
		for i, g := range gpus {
			if set&(1<<i) != 0 {
				ok, ids = ok && free(g, n.On), append(ids, g.ID)
			}
		}
		if ok && n.Fits(ids) {
			return true
		}
	}
	return false
}

// However demand goes up and down, no GPU changes twice within the time that a mode is kept, and both sides are served.
func TestDoesNotFlap(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	gpus := []GPU{{ID: "a"}, {ID: "b", Index: 1}}
	last := map[sharing.GPUID]time.Time{}
	to := map[bool]int{}
	now := start()
	for range 100000 {
		now = now.Add(time.Duration(r.IntN(20)) * time.Second)
		on := r.IntN(2) == 0
		for i := range gpus {
			gpus[i].Busy = ""
			if r.IntN(4) == 0 {
				gpus[i].Busy = "is busy"
			}
		}
		n := of("pod", on, 1, "a", "b")
		fits := n.Fits
		n.Fits = func(turned []sharing.GPUID) bool {
			return fits(turned) || slices.ContainsFunc(gpus, func(g GPU) bool { return g.On == on && g.Busy == "" })
		}
		for _, one := range Decide(gpus, []Need{n}, hold, now).Switches {
			i := slices.IndexFunc(gpus, func(g GPU) bool { return g.ID == one.GPU })
			if was, ok := last[one.GPU]; ok && now.Sub(was) < hold {
				t.Fatalf("%s changed again after %s", one.GPU, now.Sub(was))
			}
			last[one.GPU], gpus[i].On, gpus[i].SwitchedAt = now, one.On, now
			to[one.On]++
		}
	}
	if to[true] < 100 || to[false] < 100 {
		t.Errorf("%v: too few to be a test", to)
	}
}
