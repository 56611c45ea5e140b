// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// search finds the best choice for each request, one after the other. What is best for the requests from some point on
// depends only on the free space after the ones before. So it evaluates each free space once.
type search struct {
	Request
	units []mig.Mask // of each instance in Have
	// fixed is what no plan touches: all that is not ours, or busy.
	fixed mig.Occupancy
	// idle and busy are ours, as indexes in Have.
	idle, busy []int
	memo       map[position]outcome
	// digits are, for each wish, where its profile is counted in a position.
	digits []uint64
	// reasons is what is in the way of a profile, by its id, once it was asked for.
	reasons map[int]Answer
}

// position is where a search stands. It has the next request, the taken memory slices, and which busy instances (bits
// by their order) serve requests of a layout. It also has how many requests of each profile got an instance. With what
// no plan touches, that describes all of the taken space in fewer bytes: a search looks up many.
type position struct {
	taken  mig.Mask
	served uint32
	// made has a digit of four bits for each requested profile, in the order of their first requests. Its last four
	// bits are the next request: there are fewer than sixteen.
	made uint64
}

// outcome is the best that can be made of a position.
type outcome struct {
	unserved uint32 // bit 31 is the first wish: the smaller, the better
	steps    int
	room     mig.Value // what is left when idle instances are given up
	free     mig.Value // what is left as it is
	choice   choice
}

// choice is what is done for a wish.
type choice struct {
	served bool
	place  mig.Place
	// reuse is the instance in Have that serves it, or -1 where one is made.
	reuse int
	// busy is the bit of a busy instance that serves it, or 0.
	busy uint32
}

func newSearch(ask Request) (*search, error) {
	s := &search{Request: ask, memo: make(map[position]outcome, 8*len(ask.Wishes)), digits: make([]uint64,
		len(ask.Wishes))}
	for i, w := range ask.Wishes {
		s.digits[i] = 1 << (4 * slices.IndexFunc(ask.Wishes, func(v Wish) bool { return v.Profile == w.Profile }))
	}
	all := mig.Occupancy{}
	for i, in := range ask.Have {
		var err error
		if all, err = ask.Table.Add(all, in.Place); err != nil {
			return nil, fmt.Errorf("instances that the driver reports do not fit each other: %w (%w)", err,
				sharing.ErrInvalid)
		}
		m, _ := ask.Table.Mask(in.Place) // Add knows the place
		s.units = append(s.units, m)
		if in.Managed && len(in.Users) == 0 {
			s.idle = append(s.idle, i)
			continue
		}
		if in.Managed {
			s.busy = append(s.busy, i)
		}
		s.fixed, _ = ask.Table.Try(s.fixed, in.Place) // part of what was added before
	}
	return s, nil
}

func (o outcome) better(p outcome) bool {
	switch {
	case o.unserved != p.unserved:
		return o.unserved < p.unserved
	case o.steps != p.steps:
		return o.steps < p.steps
	case o.room != p.room:
		return o.room > p.room
	}
	return o.free > p.free
}

// best is the best outcome for the wishes from next on. Among equal ones it is the first: of the places that
// is the one with the highest start.
func (s *search) best(next int, taken mig.Occupancy, served uint32, made uint64) outcome {
	if next == len(s.Wishes) {
		return s.end(taken)
	}
	at := position{taken.Taken, served, made<<4 | uint64(next)} //nolint:gosec // an index
	if o, ok := s.memo[at]; ok {
		return o
	}
	best, found := outcome{}, false
	try := func(c choice, steps int, taken mig.Occupancy) {
		now := made
		if c.busy == 0 {
			now += s.digits[next]
		}
		o := s.best(next+1, taken, served|c.busy, now)
		o.steps += steps
		o.choice = c
		if !found || o.better(best) {
			best, found = o, true
		}
	}
	s.choices(s.Wishes[next], taken, served, try)
	if !found {
		best = s.best(next+1, taken, served, made)
		best.unserved |= 1 << (31 - next)
		best.choice = choice{}
	}
	s.memo[at] = best
	return best
}

// choices calls try with each way to serve the wish.
func (s *search) choices(w Wish, taken mig.Occupancy, served uint32, try func(choice, int, mig.Occupancy)) {
	if s.Exact {
		for bit, i := range s.busy {
			in := s.Have[i]
			if served&(1<<bit) == 0 && in.Ready && w.takes(in.Place) {
				try(choice{true, in.Place, i, 1 << bit}, 0, taken)
			}
		}
	}
	p, ok := s.Table.Profile(w.Profile)
	if !ok {
		return
	}
	for _, start := range slices.Backward(p.Starts) {
		place := mig.Place{Profile: p.ID, Start: start}
		if !w.takes(place) {
			continue
		}
		after, ok := s.Table.Try(taken, place)
		if !ok {
			continue
		}
		steps, reuse := 2, -1
		for _, i := range s.idle {
			if s.units[i]&after.Taken == 0 || s.units[i]&taken.Taken != 0 {
				continue // not in the way, or counted with an earlier wish
			}
			if in := s.Have[i]; in.Place == place {
				steps, reuse = 0, i
				if !in.Ready {
					steps = len(in.CIs) + 1
				}
				break
			}
			steps += s.destroying(i)
		}
		try(choice{true, place, reuse, 0}, steps, after)
	}
}

func (w Wish) takes(p mig.Place) bool {
	return w.Profile == p.Profile && (w.Start == Any || w.Start == p.Start)
}

// end is the outcome when all wishes have their choice: what else must go, and what is left.
func (s *search) end(taken mig.Occupancy) outcome {
	o := outcome{}
	stay := s.stay(taken)
	rest, steps := taken.Taken, 0
	for _, i := range stay {
		rest |= s.units[i]
		steps += s.destroying(i)
	}
	for _, i := range s.apart(taken) {
		o.steps += s.destroying(i)
	}
	o.steps -= steps
	if s.Values != nil {
		o.room = s.Values.Of(s.Table.Free(taken))
		o.free = s.Values.Of(s.Table.Full() &^ rest)
	}
	return o
}
