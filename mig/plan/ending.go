// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/bits"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

// uses is what an instance takes of the GPU: units of the axis, and so much of all else.
type uses struct {
	profile int // id
	units   mig.Mask
	amounts amounts
}

// amounts are of resources with a limited number on a GPU, whatever the memory slices. They are compute slices, the
// engines of four kinds, and instances of the requested profile.
type amounts [6]int

const ofProfile = 5

func amountsOf(compute int, e mig.Engines) amounts {
	return amounts{compute, e.Decoders, e.Encoders, e.JPEGs, e.OFAs, 0}
}

func (s *search) usesOf(place mig.Place) uses {
	u := uses{profile: place.Profile}
	u.units, _ = s.Table.Mask(place)
	p, _ := s.Table.Profile(place.Profile)
	u.amounts = amountsOf(p.Compute, p.Engines)
	return u
}

// finder searches for the fewest instances that must end so that a profile has a place. An instance on the place must
// end. Of those that use a scarce resource, at least one must end. So it tries only such sets.
type finder struct {
	*search
	profile  mig.Profile
	blockers []blocker
	// foreign are the units of what never ends, and spare is what it and the profile itself leave of all else.
	foreign mig.Mask
	spare   amounts

	// start and units are of the place that is looked at.
	start int
	units mig.Mask
	best  ending
}

// ending is a way to make room: the instances (bits) that end, and the resulting place and free space.
type ending struct {
	found  bool
	start  int
	ending uint32
	room   mig.Value
}

func (s *search) finder(p mig.Profile, blockers []blocker) *finder {
	f := &finder{search: s, profile: p, blockers: blockers, spare: amountsOf(s.Table.Compute(), s.Table.Engines())}
	f.spare[ofProfile] = p.MaxInstances
	for _, in := range s.Have {
		if !in.Managed {
			u := s.usesOf(in.Place)
			f.foreign |= u.units
			f.take(&f.spare, u)
		}
	}
	f.take(&f.spare, uses{profile: p.ID, amounts: amountsOf(p.Compute, p.Engines)})
	return f
}

func (f *finder) take(from *amounts, u uses) {
	for i, n := range u.amounts {
		from[i] -= n
	}
	if u.profile == f.profile.ID {
		from[ofProfile]--
	}
}

// find returns the best ending for the wish: fewest instances, then most valuable free space, then earliest
// instances, then highest place.
func (f *finder) find(w Wish) ending {
	for _, f.start = range slices.Backward(f.profile.Starts) {
		place := mig.Place{Profile: f.profile.ID, Start: f.start}
		f.units, _ = f.Table.Mask(place)
		if w.takes(place) && f.units&f.foreign == 0 {
			f.try(0, 0)
		}
	}
	return f.best
}

// try searches all sets that contain the instances of some and none of the barred ones.
func (f *finder) try(some, barred uint32) {
	some |= f.overlapping(some)
	if some&barred != 0 || f.best.found && bits.OnesCount32(some) > bits.OnesCount32(f.best.ending) {
		return
	}
	short, enough := f.short(some)
	if enough {
		if e := (ending{true, f.start, some, f.room(some)}); e.better(f.best) {
			f.best = e
		}
		return
	}
	for short &^= barred; short != 0; {
		one := short & -short
		f.try(some|one, barred)
		short &^= one
		barred |= one // all sets with it have been looked at
	}
}

func (e ending) better(than ending) bool {
	n, m := bits.OnesCount32(e.ending), bits.OnesCount32(than.ending)
	switch {
	case !than.found || n != m:
		return !than.found || n < m
	case e.room != than.room:
		return e.room > than.room
	}
	return e.ending < than.ending
}

// overlapping returns further instances that must end because they are on the place: existing ones, and waiting ones
// that are not gone before it.
func (f *finder) overlapping(ending uint32) uint32 {
	for {
		more, gone := uint32(0), f.gone(ending)
		for i := range f.blockers {
			bit := uint32(1) << i
			if f.blockers[i].uses.units&f.units == 0 || ending&bit != 0 {
				continue
			}
			if f.blockers[i].after == 0 || gone&bit == 0 {
				more |= bit
			}
		}
		if more == 0 {
			return ending
		}
		ending |= more
	}
}

// gone returns the instances that are no longer there when those of ending have ended and the waiting wishes have
// their places.
func (f *finder) gone(ending uint32) uint32 {
	gone := ending
	for i := range f.blockers {
		if ending&(1<<i) == 0 {
			gone |= f.blockers[i].after
		}
	}
	return gone
}

// short returns instances of which at least one more must end, because a resource other than memory slices is scarce.
// If none is scarce, enough is true.
func (f *finder) short(ending uint32) (blockers uint32, enough bool) {
	gone := f.gone(ending)
	now, later := f.spare, f.spare
	for i := range f.blockers {
		p := &f.blockers[i]
		if p.after == 0 && ending&(1<<i) == 0 {
			f.take(&now, p.uses)
		}
		if gone&(1<<i) == 0 {
			f.take(&later, p.uses)
		}
	}
	for what := range now {
		if now[what] >= 0 && later[what] >= 0 {
			continue
		}
		for i := range f.blockers {
			p, bit := &f.blockers[i], uint32(1)<<i
			there := gone&bit == 0
			if now[what] < 0 {
				there = p.after == 0 && ending&bit == 0
			}
			if there && (p.uses.amounts[what] > 0 || what == ofProfile && p.uses.profile == f.profile.ID) {
				blockers |= bit
			}
		}
		return blockers, false
	}
	return 0, true
}

// room returns the free space around the place in the end.
func (f *finder) room(ending uint32) mig.Value {
	if f.Values == nil {
		return 0
	}
	taken, gone := f.foreign|f.units, f.gone(ending)
	for i := range f.blockers {
		if gone&(1<<i) == 0 {
			taken |= f.blockers[i].uses.units
		}
	}
	return f.Values.Of(f.Table.Full() &^ taken)
}

// apart are the idle instances that have no unit in common with what is taken.
func (s *search) apart(taken mig.Occupancy) []int {
	var list []int
	for _, i := range s.idle {
		if s.units[i]&taken.Taken == 0 {
			list = append(list, i)
		}
	}
	return list
}

// stay returns the idle instances that need not go. Mostly these are all. If they use engines or slices that are
// taken, it saves as many steps as possible.
func (s *search) stay(taken mig.Occupancy) []int {
	if s.Exact {
		return nil
	}
	list := s.apart(taken)
	all := taken
	for _, i := range list {
		var fits bool
		if all, fits = s.Table.Try(all, s.Have[i].Place); !fits {
			return s.most(taken, list)
		}
	}
	return list
}

// most are those of the list that can stay together and save the most steps.
func (s *search) most(taken mig.Occupancy, list []int) []int {
	var best []int
	saved := -1
	var try func(o mig.Occupancy, n int, kept []int, steps int)
	try = func(o mig.Occupancy, n int, kept []int, steps int) {
		if n == len(list) {
			if steps > saved {
				best, saved = slices.Clone(kept), steps
			}
			return
		}
		if next, fits := s.Table.Try(o, s.Have[list[n]].Place); fits {
			try(next, n+1, append(kept, list[n]), steps+s.destroying(list[n]))
		}
		try(o, n+1, kept, steps)
	}
	try(taken, 0, nil, 0)
	return best
}

// destroying is the number of steps that destroy an instance.
func (s *search) destroying(i int) int { return len(s.Have[i].CIs) + 1 }
