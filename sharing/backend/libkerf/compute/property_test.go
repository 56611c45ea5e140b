// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// bursts wants for some time and then not, at random.
func bursts(r *rand.Rand) func(time.Duration) bool {
	on, until := r.IntN(2) == 0, time.Duration(0)
	return func(now time.Duration) bool {
		if now >= until {
			on, until = !on, now+time.Duration(1+r.IntN(800))*ms
		}
		return on
	}
}

// some makes up to six workers whose percents are at most 100.
func some(r *rand.Rand, wants func() func(time.Duration) bool) []*worker {
	var ws []*worker
	left := 100
	for i := range 2 + r.IntN(5) {
		p := min(5+r.IntN(60), left)
		if p < 5 {
			break
		}
		left -= p
		ws = append(ws, &worker{
			// #nosec G115 -- 5 to 100
			grant:  Grant{ID: ID(fmt.Sprint(i)), Percent: sharing.Percent(p), Priority: r.IntN(3)},
			kernel: time.Duration(1+r.IntN(80)) * tick, depth: 1 + r.IntN(4), bias: 100, wants: wants(),
		})
	}
	return ws
}

func each(t *testing.T, n int, do func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for seed := range uint64(n) { // #nosec G115 -- small
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { do(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// 10:90 gives one to nine within a tenth over ten seconds, whatever the GPU's slice is.
func TestTenToNinety(t *testing.T) {
	for _, slice := range []time.Duration{0, 2 * ms} {
		for _, mode := range []Mode{Strict, Fair} {
			a := &worker{grant: Grant{ID: "a", Percent: 10}, kernel: ms, depth: 2, bias: 100, wants: always}
			b := &worker{grant: Grant{ID: "b", Percent: 90}, kernel: ms, depth: 2, bias: 100, wants: always}
			g := &gpu{workers: []*worker{a, b}, slice: slice}
			g.run(&Controller{}, mode, 10*time.Second, nil)
			if ratio := float64(b.used) / float64(a.used); ratio < 8.1 || ratio > 9.9 {
				t.Errorf("slice %v, mode %d: %v and %v: 1 to %.2f", slice, mode, a.used, b.used, ratio)
			}
		}
	}
}

// It also holds with graphs: programs launch much at once and wait for it, each time a little late. That is no idle
// time for others.
func TestTenToNinetyInBatches(t *testing.T) {
	for _, slice := range []time.Duration{0, 2 * ms} {
		for _, mode := range []Mode{Strict, Fair} {
			for _, lag := range []time.Duration{0, 2 * ms} {
				a := &worker{grant: Grant{ID: "a", Percent: 10}, kernel: 10 * ms, depth: 8, bias: 100, wants: always,
					waits: true, lag: lag}
				b := &worker{grant: Grant{ID: "b", Percent: 90}, kernel: 10 * ms, depth: 8, bias: 100, wants: always,
					waits: true, lag: lag}
				g := &gpu{workers: []*worker{a, b}, slice: slice}
				g.run(&Controller{}, mode, 10*time.Second, nil)
				if ratio := float64(b.used) / float64(a.used); ratio < 8.1 || ratio > 9.9 {
					t.Errorf("slice %v, mode %d, %v late: %v and %v: 1 to %.2f", slice, mode, lag, a.used, b.used,
						ratio)
				}
			}
		}
	}
}

// Strict: whatever comes when, none is above its percent over a window, but for a full budget and what is in flight.
func TestStrictHolds(t *testing.T) {
	each(t, 30, func(t *testing.T, r *rand.Rand) {
		ws := some(r, func() func(time.Duration) bool { return bursts(r) })
		g := &gpu{workers: ws, slice: time.Duration(r.IntN(3)) * ms}
		var c Controller
		for range 3 {
			before := make([]time.Duration, len(ws))
			for i, w := range ws {
				before[i] = w.used
			}
			g.run(&c, Strict, 2*time.Second, func(refills []TokenUpdate) {
				for _, f := range refills {
					if f.Spare != 0 {
						t.Fatalf("burst %v", f)
					}
				}
			})
			for i, w := range ws {
				own := shares([]Grant{w.grant})[0]
				most := own.of(2*time.Second+fullAfter+period) + 2*time.Duration(w.depth)*w.kernel
				if got := w.used - before[i]; got > most {
					t.Errorf("%+v: %v in 2 s, at most %v", w.grant, got, most)
				}
			}
		}
	})
}

// Fair: who always wants gets its share, whatever the others and their priorities do, and all the time is used.
func TestFairNeverStarves(t *testing.T) {
	each(t, 30, func(t *testing.T, r *rand.Rand) {
		ws := some(r, func() func(time.Duration) bool { return bursts(r) })
		w := ws[r.IntN(len(ws))]
		w.wants = always
		g := &gpu{workers: ws, slice: time.Duration(r.IntN(3)) * ms}
		var c Controller
		g.run(&c, Fair, time.Second, nil)
		before := w.used
		g.run(&c, Fair, 4*time.Second, nil)
		least := shares([]Grant{w.grant})[0].of(4*time.Second) * 85 / 100
		if got := w.used - before; got < least {
			t.Errorf("%+v: %v in 4 s, at least %v", w.grant, got, least)
		}
	})
}

// Whatever is seen, no more is added than time has passed, as long as the driver corrects nothing.
func TestAddsNoMoreThanThereIs(t *testing.T) {
	each(t, 30, func(t *testing.T, r *rand.Rand) {
		var c Controller
		var grants []Grant
		for i := range 1 + r.IntN(8) {
			// #nosec G115 -- small
			grants = append(grants, Grant{ID: ID(fmt.Sprint(i)), Percent: sharing.Percent(r.IntN(101)),
				Priority: r.IntN(3)})
		}
		for range 300 {
			seen := map[ID]Seen{}
			for _, g := range grants {
				if r.IntN(10) > 0 {
					seen[g.ID] = Seen{Balance: time.Duration(r.IntN(300)-150) * ms,
						Charged: time.Duration(r.IntN(3)*r.IntN(40)) * ms}
				}
			}
			passed := time.Duration(r.IntN(250)) * ms
			var sum time.Duration
			for _, f := range c.Step(Mode(r.IntN(2)), passed, grants, seen) {
				if sum += f.Add; f.Add < 0 || f.Spare < 0 || f.Spare > f.Add {
					t.Fatalf("refill %+v", f)
				}
			}
			if sum > passed {
				t.Fatalf("%v added in %v", sum, passed)
			}
		}
	})
}

// Fair: in each case, others get at most what the shares of running grants leave. A class gets nothing while one above
// it has budgets to fill.
func TestLendsByClass(t *testing.T) {
	each(t, 30, func(t *testing.T, r *rand.Rand) {
		var c Controller
		var grants []Grant
		for i := range 2 + r.IntN(6) {
			// #nosec G115 -- small
			grants = append(grants, Grant{ID: ID(fmt.Sprint(i)), Percent: sharing.Percent(1 + r.IntN(15)),
				Priority: r.IntN(4) - 1})
		}
		parts := shares(grants)
		for range 300 {
			seen := map[ID]Seen{}
			for _, g := range grants {
				seen[g.ID] = Seen{Balance: time.Duration(r.IntN(120)-60) * ms,
					Charged: time.Duration(r.IntN(2)*r.IntN(20)) * ms}
			}
			passed := time.Duration(1+r.IntN(40)) * ms
			refills := c.Step(Fair, passed, grants, seen)
			var lent, own time.Duration
			for i, f := range refills {
				lent, own = lent+f.Spare, own+f.Add-f.Spare
				full := max(parts[i].of(fullAfter), lendSteps*passed)
				room := full - seen[f.ID].Balance - f.Add
				for j, g := range refills {
					if room > time.Microsecond && g.Spare > 0 && grants[j].Priority < grants[i].Priority {
						t.Fatalf("class %d is given %v while class %d has room for %v", grants[j].Priority, g.Spare,
							grants[i].Priority, room)
					}
				}
			}
			if lent > passed-own {
				t.Fatalf("%v burst of %v that are left", lent, passed-own)
			}
		}
	})
}

// Fair: time that no other grant uses goes to the one that needs it.
func TestFairLends(t *testing.T) {
	a := &worker{grant: Grant{ID: "a", Percent: 10}, kernel: ms, depth: 2, bias: 100, wants: always}
	b := &worker{grant: Grant{ID: "b", Percent: 90}, kernel: ms, depth: 2, bias: 100, wants: never}
	g := &gpu{workers: []*worker{a, b}}
	g.run(&Controller{}, Fair, 2*time.Second, nil)
	if a.used < 1850*ms { // it takes a tenth of a second to see that the other one rests
		t.Errorf("alone it got %v of 2 s", a.used)
	}
}

// Fair: of two that want all there is, the one of the higher class gets what a third leaves, and the other its own
// share.
func TestFairLendsToTheHigherClass(t *testing.T) {
	each(t, 20, func(t *testing.T, r *rand.Rand) {
		high := &worker{grant: Grant{ID: "high", Percent: 20, Priority: 1 + r.IntN(1000)}, kernel: ms, depth: 2,
			bias: 100, wants: always}
		low := &worker{grant: Grant{ID: "low", Percent: 20, Priority: -r.IntN(10)}, kernel: ms, depth: 2, bias: 100,
			wants: always}
		rests := &worker{grant: Grant{ID: "rests", Percent: 60}, kernel: ms, depth: 2, bias: 100, wants: never}
		g := &gpu{workers: []*worker{low, high, rests}, slice: 2 * ms}
		var c Controller
		g.run(&c, Fair, time.Second, nil) // until it is seen that the third rests
		a, b := high.used, low.used
		g.run(&c, Fair, 3*time.Second, nil)
		if got, rest := high.used-a, low.used-b; got < 2150*ms || rest < 500*ms || rest > 750*ms {
			t.Errorf("classes %d and %d: %v and %v of 3 s, want 2.4 s and 0.6 s", high.grant.Priority,
				low.grant.Priority, got, rest)
		}
	})
}

// A grant gets its time back within 200 ms of its request.
func TestFairGivesBack(t *testing.T) {
	each(t, 40, func(t *testing.T, r *rand.Rand) {
		wakes := time.Second + time.Duration(r.IntN(1000))*ms
		owner := &worker{
			// #nosec G115 -- small
			grant:  Grant{ID: "owner", Percent: sharing.Percent(20 + r.IntN(75))},
			kernel: time.Duration(1+r.IntN(80)) * tick, depth: 3, bias: 100,
			wants: func(now time.Duration) bool { return now >= wakes },
		}
		lent := &worker{
			grant:  Grant{ID: "burst", Percent: 100 - owner.grant.Percent, Priority: r.IntN(3)},
			kernel: time.Duration(1+r.IntN(80)) * tick,
			depth:  1 + r.IntN(4), bias: 100, wants: always,
		}
		g := &gpu{workers: []*worker{lent, owner}, slice: 2 * ms}
		var c Controller
		g.run(&c, Fair, wakes+200*ms, nil)
		before := owner.used
		g.run(&c, Fair, time.Second, nil)
		least := shares([]Grant{owner.grant})[0].of(time.Second) * 88 / 100
		if got := owner.used - before; got < least {
			t.Errorf("%+v: %v in the second after 200 ms, at least %v", owner.grant, got, least)
		}
	})
}

// Charges that are wrong by a factor are made right by what the driver tells, as far as that is certain.
func TestCorrectsCharges(t *testing.T) {
	for _, bias := range []int{40, 70, 150, 250} {
		a := &worker{grant: Grant{ID: "a", Percent: 40}, kernel: ms, depth: 1, bias: bias, wants: always}
		b := &worker{grant: Grant{ID: "b", Percent: 60}, kernel: ms, depth: 2, bias: 100, wants: always}
		g := &gpu{workers: []*worker{a, b}, slice: 2 * ms}
		var c Controller
		g.run(&c, Strict, 3*time.Minute, nil)
		before := a.used
		g.run(&c, Strict, 10*time.Second, nil)
		least, most := 2600*ms, 4800*ms // if the GPU has idle time, its owner is unknown
		if got := a.used - before; got < least || got > most {
			t.Errorf("charged %d percent of what it uses, it got %v of 4 s", bias, got)
		}
	}
}
