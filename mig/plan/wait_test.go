// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
)

// waiting is what a wish that is not served waits for: a place, and bits of the instances that must end.
type waiting struct {
	places  []mig.Place // of instances: busy ones, served wishes, waiting wishes
	holders [][]string
	after   []uint32
}

func (w *waiting) add(p mig.Place, holders []string, after uint32) {
	w.places, w.holders, w.after = append(w.places, p), append(w.holders, holders), append(w.after, after)
}

// fits tries a place together with the unmanaged instances and the instances that stay.
func (w *waiting) fits(t *mig.Table, foreign []mig.Place, left func(i int) bool, p mig.Place) (mig.Occupancy, bool) {
	places := slices.Clone(foreign)
	for i := range w.places {
		if left(i) {
			places = append(places, w.places[i])
		}
	}
	o, err := t.Occupy(append(places, p))
	return o, err == nil
}

// first is the best of all sets of instances, by trying each: the fewest, then the most valuable room, then the lowest
// number.
func (w *waiting) first(t *mig.Table, values *mig.Values, foreign []mig.Place, wish plan.Wish) (mig.Place, uint32,
	bool) {
	p, _ := t.Profile(wish.Profile)
	best, at, room, found := uint32(0), mig.Place{}, mig.Value(0), false
	for ending := uint32(1); ending < 1<<len(w.places); ending++ {
		if found && bits.OnesCount32(ending) > bits.OnesCount32(best) {
			continue
		}
		gone := ending
		for i := range w.places {
			if ending&(1<<i) == 0 {
				gone |= w.after[i]
			}
		}
		for _, start := range slices.Backward(p.Starts) {
			place := mig.Place{Profile: p.ID, Start: start}
			if wish.Start != plan.Any && wish.Start != start {
				continue
			}
			_, now := w.fits(t, foreign, func(i int) bool { return w.after[i] == 0 && ending&(1<<i) == 0 }, place)
			if !now {
				continue
			}
			o, later := w.fits(t, foreign, func(i int) bool { return gone&(1<<i) == 0 }, place)
			if !later {
				continue
			}
			if r := values.Of(t.Free(o)); !found || bits.OnesCount32(ending) < bits.OnesCount32(best) || r > room {
				best, at, room, found = ending, place, r, true
			}
		}
	}
	return at, best, found
}

// The instances that a wish waits for are the best of all sets, on fragmented GPUs of each kind, with unmanaged
// instances among them.
func TestWishesWaitForTheFewest(t *testing.T) {
	for _, name := range []string{"a30x2", "a100x8", "b200x8", "rtxpro6000x4"} {
		t.Run(name, func(t *testing.T) {
			table := table(t, name)
			values := mig.NewValues(table, nil)
			r := rand.New(rand.NewPCG(12, 1))
			waits := 0
			for range 150 {
				g := random(table, r)
				ask := plan.Request{Table: table, Values: values, Have: g.have, Wishes: wishes(table, r, 5)}
				p, err := plan.Make(ask)
				if err != nil {
					t.Fatal(err)
				}
				waits += compareWaits(t, ask, p)
			}
			if waits < 40 {
				t.Errorf("%d wishes that wait are too few to be a test", waits)
			}
		})
	}
}

// compareWaits gives how many wishes wait for others.
func compareWaits(t *testing.T, ask plan.Request, p plan.Plan) int {
	t.Helper()
	var foreign []mig.Place
	w, waits := &waiting{}, 0
	for _, in := range ask.Have {
		switch {
		case !in.Managed:
			foreign = append(foreign, in.Place)
		case len(in.Users) > 0:
			w.add(in.Place, in.Users, 0)
		}
	}
	for i, a := range p.Answers {
		if a.State == plan.Ready || a.State == plan.Made {
			w.add(a.Place, []string{ask.Wishes[i].For}, 0)
		}
	}
	for i, a := range p.Answers {
		if a.State == plan.Ready || a.State == plan.Made {
			continue
		}
		at, ending, found := w.first(ask.Table, ask.Values, foreign, ask.Wishes[i])
		want := plan.Answer{State: plan.Unmanaged}
		if found {
			want = plan.Answer{State: plan.Pending, Place: at}
			for k, names := range w.holders {
				if ending&(1<<k) != 0 {
					want.BlockedBy = append(want.BlockedBy, names...)
				}
			}
			slices.Sort(want.BlockedBy)
			want.BlockedBy = slices.Compact(want.BlockedBy)
			w.add(at, []string{ask.Wishes[i].For}, ending)
			waits++
		}
		want.Fragmented, want.Reason = a.Fragmented, a.Reason
		if d := cmp.Diff(want, a); d != "" {
			t.Fatalf("%+v\nwish %d (-want +got):\n%s", ask, i, d)
		}
	}
	return waits
}
