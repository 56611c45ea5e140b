// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// Random states and wishes: each plan is carried out on a GPU that refuses what is not safe, and must keep what
// it says. After every step there is a legal set, and from every prefix a new plan reaches the same answers.
func TestPlansKeepTheirWord(t *testing.T) {
	for name, rounds := range map[string]int{"a30x2": 1500, "a100x8": 1500, "b200x8": 1500, "rtxpro6000x4": 1500,
		"h100x8": 500, "h200x8": 500} {
		t.Run(name, func(t *testing.T) {
			table := table(t, name)
			values := mig.NewValues(table, nil)
			r := rand.New(rand.NewPCG(5, 6))
			states := map[plan.State]int{}
			for range rounds {
				g := random(table, r)
				ask := plan.Request{Table: table, Values: values, Have: g.have, Wishes: wishes(table, r, 4),
					Exact: r.IntN(3) == 0}
				p, err := plan.Make(ask)
				if err != nil {
					if ask.Exact && errors.Is(err, sharing.ErrInvalid) && plan.Possible(table, ask.Wishes) != nil {
						continue
					}
					t.Fatalf("%+v: %v", ask, err)
				}
				for _, a := range p.Answers {
					states[a.State]++
				}
				check(t, g, ask, p)
			}
			for _, s := range []plan.State{plan.Ready, plan.Made, plan.Pending, plan.Unmanaged} {
				if states[s] < rounds/30 {
					t.Errorf("%d answers %s are too few to be a test", states[s], s)
				}
			}
		})
	}
}

func check(t *testing.T, g *gpu, ask plan.Request, p plan.Plan) {
	t.Helper()
	before := g.clone()
	for n, s := range p.Steps {
		if n > 0 {
			again(t, g, ask, p)
		}
		if err := g.do(s); err != nil {
			t.Fatalf("%+v\nplan %+v\nstep %d: %v", ask, p, n, err)
		}
		g.occupancy(t)
	}
	var served []plan.Wish
	for i, a := range p.Answers {
		switch a.State {
		case plan.Ready, plan.Made:
			served = append(served, ask.Wishes[i])
			if a.Place.Profile != ask.Wishes[i].Profile || len(a.BlockedBy) > 0 || a.Reason != "" {
				t.Fatalf("answer %+v to %+v", a, ask.Wishes[i])
			}
		case plan.Pending:
			if len(a.BlockedBy) == 0 || a.Reason == "" {
				t.Fatalf("answer %+v to %+v", a, ask.Wishes[i])
			}
			ends(t, before, ask, i, a)
		case plan.Unmanaged, plan.Never:
			if a.Reason == "" {
				t.Fatalf("answer %+v to %+v", a, ask.Wishes[i])
			}
		}
	}
	if !g.serves(served, ask.Exact) {
		t.Fatalf("%+v\nplan %+v\nleads to %v", ask, p, g.key())
	}
	if ask.Exact && len(served) == len(ask.Wishes) && ours(g) != len(ask.Wishes)+len(p.Left) {
		t.Fatalf("%+v\nplan %+v\nleaves what is not in the layout: %v", ask, p, g.key())
	}
	ask.Have = g.have
	if p, err := plan.Make(ask); err != nil || len(p.Steps) != 0 {
		t.Fatalf("%+v\nis what was wanted, and the plan is %+v (%v)", ask, p, err)
	}
}

func ours(g *gpu) int {
	n := 0
	for _, in := range g.have {
		if in.Managed {
			n++
		}
	}
	return n
}

// again plans in the middle of a plan, as after a crash: with the calls that were done the rest is no longer.
func again(t *testing.T, g *gpu, ask plan.Request, first plan.Plan) {
	t.Helper()
	ask.Have = slices.Clone(g.have)
	p, err := plan.Make(ask)
	if err != nil {
		t.Fatalf("%+v: %v", ask, err)
	}
	if len(p.Steps) >= len(first.Steps) {
		t.Fatalf("%+v\ncontinues with %+v, longer than %+v", ask, p.Steps, first.Steps)
	}
	for i, a := range first.Answers {
		was, is := a.State == plan.Ready || a.State == plan.Made, p.Answers[i].State == plan.Ready ||
			p.Answers[i].State == plan.Made
		if was != is {
			t.Fatalf("%+v\nwish %d was %v and is %v", ask, i, a, p.Answers[i])
		}
	}
}

// ends checks that a wish that waits can be served once those that it waits for are gone: instances that they
// hold, and the wishes before it that are among them.
func ends(t *testing.T, g *gpu, ask plan.Request, i int, a plan.Answer) {
	t.Helper()
	c := g.clone()
	c.have = slices.DeleteFunc(c.have, func(in plan.Instance) bool {
		return in.Managed && len(in.Users) > 0 && slices.Contains(a.BlockedBy, in.Users[0])
	})
	p, err := plan.Make(plan.Request{Table: ask.Table, Have: c.have, Wishes: []plan.Wish{ask.Wishes[i]}})
	if err != nil || p.Answers[0].State != plan.Made && p.Answers[0].State != plan.Ready {
		t.Fatalf("%+v\nwish %d waits for %q, and then: %+v (%v)", ask, i, a.BlockedBy, p.Answers, err)
	}
}

// Against all that could be done: nothing that is said to be impossible is possible, who comes first is served
// first, and nothing is shorter.
func TestPlansAreShortest(t *testing.T) {
	for name, rounds := range map[string]int{"a30x2": 150, "rtxpro6000x4": 100, "b200x8": 60, "a100x8": 60,
		"h100x8": 60, "h200x8": 60} {
		t.Run(name, func(t *testing.T) {
			table := table(t, name)
			r := rand.New(rand.NewPCG(7, 8))
			for range rounds {
				g := random(table, r)
				ask := plan.Request{Table: table, Have: g.have, Wishes: wishes(table, r, 2)}
				p, err := plan.Make(ask)
				if err != nil {
					t.Fatal(err)
				}
				var served []plan.Wish
				for i, a := range p.Answers {
					with := append(slices.Clip(served), ask.Wishes[i])
					if a.State == plan.Ready || a.State == plan.Made {
						served = with
					} else if n := g.shortest(with); n >= 0 {
						t.Fatalf("%+v\nwish %d is %v, and %d steps serve it", ask, i, a, n)
					}
				}
				if d := cmp.Diff(g.shortest(served), len(p.Steps)); d != "" {
					t.Fatalf("%+v\nsteps of %+v (-shortest +plan):\n%s", ask, p, d)
				}
			}
		})
	}
}

// Leaving out what can be of no use leaves out no shortest way: on the GPU where all calls can be tried, they find none
// shorter.
func TestNothingElseIsOfUse(t *testing.T) {
	table := table(t, "a30x2")
	r := rand.New(rand.NewPCG(9, 10))
	served, never := 0, 0
	for range 60 {
		g := random(table, r)
		wishes := wishes(table, r, 2)
		got, all := g.shortest(wishes), g.least(wishes, func(plan.Step) bool { return true })
		if got != all {
			t.Fatalf("%+v\n%+v: %d calls, and %d where all are tried", g.have, wishes, got, all)
		}
		if all > 0 {
			served++
		} else if all < 0 {
			never++
		}
	}
	if served < 10 || never < 10 {
		t.Errorf("%d served by calls, %d never: too few to be a test", served, never)
	}
}
