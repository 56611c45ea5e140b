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

// amounts are of what a GPU has a limited number, whatever the units: compute slices, the engines of four kinds, and
// instances of the profile that is looked for.
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

// finder looks for the fewest pieces that must end for a profile to have a place. A piece that overlaps the place must end in any
// case, and of those that take what is short one must: so it tries no other sets, however many pieces there are.
type finder struct {
	*search
	profile mig.Profile
	pieces  []piece
	// foreign are the units of what never ends, and spare is what it and the profile itself leave of all else.
	foreign mig.Mask
	spare   amounts

	// start and units are of the place that is looked at.
	start int
	units mig.Mask
	best  ending
}

// ending is a way to make room: the pieces (bits) that end, and what the place and the room beside it then are.
type ending struct {
	found  bool
	start  int
	ending uint32
	room   mig.Value
}

func (s *search) finder(p mig.Profile, pieces []piece) *finder {
	f := &finder{search: s, profile: p, pieces: pieces, spare: amountsOf(s.Table.Compute(), s.Table.Engines())}
	f.spare[ofProfile] = p.Most
	for _, in := range s.Have {
		if !in.Ours {
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

// find is the best ending for the wish: of the fewest pieces, then the one that leaves the most valuable room, then the one of
// the pieces that come first, then the one of the highest place.
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

// try looks at all sets that have the pieces of some and none of those that are barred.
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

// overlapping are the pieces that must end, beside those that do, because they are on the place: those that are there, and those
// that wait and are not gone before it.
func (f *finder) overlapping(ending uint32) uint32 {
	for {
		more, gone := uint32(0), f.gone(ending)
		for i := range f.pieces {
			bit := uint32(1) << i
			if f.pieces[i].uses.units&f.units == 0 || ending&bit != 0 {
				continue
			}
			if f.pieces[i].after == 0 || gone&bit == 0 {
				more |= bit
			}
		}
		if more == 0 {
			return ending
		}
		ending |= more
	}
}

// gone are the pieces that are no longer there when those of ending have ended and the wishes that wait have their places.
func (f *finder) gone(ending uint32) uint32 {
	gone := ending
	for i := range f.pieces {
		if ending&(1<<i) == 0 {
			gone |= f.pieces[i].after
		}
	}
	return gone
}

// short are the pieces of which at least one more must end for want of something that is not units; true when nothing is short.
func (f *finder) short(ending uint32) (pieces uint32, enough bool) {
	gone := f.gone(ending)
	now, later := f.spare, f.spare
	for i := range f.pieces {
		p := &f.pieces[i]
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
		for i := range f.pieces {
			p, bit := &f.pieces[i], uint32(1)<<i
			there := gone&bit == 0
			if now[what] < 0 {
				there = p.after == 0 && ending&bit == 0
			}
			if there && (p.uses.amounts[what] > 0 || what == ofProfile && p.uses.profile == f.profile.ID) {
				pieces |= bit
			}
		}
		return pieces, false
	}
	return 0, true
}

// room is what is left beside the place in the end.
func (f *finder) room(ending uint32) mig.Value {
	if f.Values == nil {
		return 0
	}
	taken, gone := f.foreign|f.units, f.gone(ending)
	for i := range f.pieces {
		if gone&(1<<i) == 0 {
			taken |= f.pieces[i].uses.units
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

// stay are the idle instances beside what is taken that need not go. Mostly that is all of them; where they want
// engines or slices that are taken, as many steps as possible are saved.
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
