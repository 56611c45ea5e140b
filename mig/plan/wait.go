// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
)

// piece is something in the way of a wish that is not served.
type piece struct {
	place   mig.Place
	holders []string
	// after are the pieces (bits) that must end before this one is there: it is the place that a wish before waits
	// for. 0 for what is there, or made by the plan.
	after uint32
}

// explain answers the wishes that are not served: each with the place that is had soonest, for whom it waits, or
// that there is none. The place for which a wish waits is kept from those that come after it.
func (s *search) explain(answers []Answer, choices []choice) {
	var pieces []piece
	for _, i := range s.busy {
		pieces = append(pieces, piece{s.Have[i].Place, s.Have[i].Holders, 0})
	}
	for i, c := range choices {
		if c.served && c.busy == 0 {
			pieces = append(pieces, piece{c.place, []string{s.who(i)}, 0})
		}
	}
	for i, c := range choices {
		if c.served {
			continue
		}
		a, ending := s.wait(s.Wishes[i], pieces)
		if answers[i] = a; a.State == Waits {
			pieces = append(pieces, piece{a.Place, []string{s.who(i)}, ending})
		}
	}
}

// who is who a wish is for.
func (s *search) who(i int) string {
	if s.Wishes[i].For != "" {
		return s.Wishes[i].For
	}
	return fmt.Sprintf("wish %d", i+1)
}

// wait finds the place of w that becomes free when the fewest pieces end; of equal ones the one that leaves the
// most valuable room. The second result has a bit for each piece that must end.
func (s *search) wait(w Wish, pieces []piece) (Answer, uint32) {
	p, ok := s.Table.Profile(w.Profile)
	if !ok {
		return Answer{Why: fmt.Sprintf("the GPU has no MIG profile %d", w.Profile)}, 0
	}
	if w.Start != Any && !slices.Contains(p.Starts, w.Start) {
		return Answer{Why: fmt.Sprintf("%s cannot begin at %d", p.Name, w.Start)}, 0
	}
	now, _ := s.beside(pieces, 0)
	a := Answer{State: Foreign, Fragmented: s.Table.Rearranged(now, p.ID), Why: s.Table.Why(now, p.ID)}
	if a.Why == "" {
		a.Why = fmt.Sprintf("%s at %d is taken", p.Name, w.Start) // there is room elsewhere, and a start is demanded
	}
	worth, chosen := mig.Value(-1), uint32(0)
	for n := 1; n <= len(pieces) && a.State == Foreign; n++ {
		for ending := range choices32(len(pieces), n) {
			now, later := s.beside(pieces, ending)
			for _, start := range slices.Backward(p.Starts) {
				place := mig.Place{Profile: p.ID, Start: start}
				if !w.takes(place) || !s.Table.Fits(now, place) {
					continue
				}
				after, ok := s.Table.Try(later, place)
				if room := s.worth(after); ok && room > worth {
					worth, chosen = room, ending
					a.State, a.Place, a.WaitsFor = Waits, place, holders(pieces, ending)
				}
			}
		}
	}
	if a.State == Foreign {
		a.Why += "; in the way are instances that Kerf did not make: " + s.foreignNames()
	}
	return a, chosen
}

// choices32 are all ways to choose k of n bits, in the order of their numbers; n is at most 31.
func choices32(n, k int) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for x := uint32(1)<<k - 1; x>>n == 0; {
			if !yield(x) || x == 0 {
				return
			}
			// The lowest run of ones gives its highest bit to the place above it, and the others fall to the bottom.
			low := x & -x
			carried := x + low
			x = carried | (carried^x)/low>>2
		}
	}
}

// beside is what is taken when these pieces have ended: at once, and when the wishes that wait have their places.
func (s *search) beside(pieces []piece, ending uint32) (now, later mig.Occupancy) {
	gone := ending
	for i, p := range pieces {
		if ending&(1<<i) == 0 {
			gone |= p.after
		}
	}
	now = s.foreign()
	later = now
	for i, p := range pieces {
		// Pieces that are there at one time are beside each other.
		if p.after == 0 && ending&(1<<i) == 0 {
			now, _ = s.Table.Try(now, p.place)
		}
		if gone&(1<<i) == 0 {
			later, _ = s.Table.Try(later, p.place)
		}
	}
	return now, later
}

func (s *search) worth(taken mig.Occupancy) mig.Value {
	if s.Values == nil {
		return 0
	}
	return s.Values.Of(s.Table.Free(taken))
}

// foreign is what instances take that are not ours.
func (s *search) foreign() mig.Occupancy {
	o := mig.Occupancy{}
	for _, in := range s.Have {
		if !in.Ours {
			o, _ = s.Table.Try(o, in.Place) // part of what was added before
		}
	}
	return o
}

func (s *search) foreignNames() string {
	var names []string
	for _, in := range s.Have {
		if !in.Ours {
			names = append(names, fmt.Sprintf("%s at %d", s.Table.Name(in.Place.Profile), in.Place.Start))
		}
	}
	return strings.Join(names, ", ")
}

func holders(pieces []piece, ending uint32) []string {
	var names []string
	for i, p := range pieces {
		if ending&(1<<i) != 0 {
			names = append(names, p.holders...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
