// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// gpu is one GPU's page in the books.
type gpu struct {
	// facts are those of the last inventory that had it. Of a GPU that only a restored claim named, all but
	// the UUID is empty.
	facts sharing.GPU
	// present is true while the last inventory has it. A GPU that is not present and has no claims is
	// dropped.
	present bool
	// held sums the fragments of all claims on this GPU, leased those of the leased ones: leased <= held.
	held, leased sum
	// excused is true while facts have made held more than the GPU has. Otherwise held fits it.
	excused bool
	// lent sums what leases are lent here. It fits beside held.memory, or lentExcused is true: facts have made it
	// too much.
	lent        sharing.Bytes
	lentExcused bool
}

// sum is what several fragments of one GPU take together.
type sum struct {
	// memory does not wrap: booking refuses what would.
	memory sharing.Bytes
	// percent may exceed 100 only where facts made it so.
	percent sharing.Percent
	// claims counts the fragments, whole those that take the GPU for themselves: whole <= claims.
	claims, whole int
	// instances counts the fragments that are MIG instances, and units how many of them are on each placement unit.
	instances int
	units     [maxUnits]uint8
}

// maxUnits is past the placement units of any GPU.
const maxUnits = 16

// place counts a MIG instance, or with -1 takes it off again.
func (s *sum) place(in sharing.Instance, by int) {
	s.instances += by
	for u := max(0, in.Start); u < min(in.Start+in.Size, maxUnits); u++ {
		s.units[u] = uint8(int(s.units[u]) + by) //nolint:gosec // as many as claims on one GPU, and never below 0
	}
}

// with returns s and f together, or an error that wraps ErrInvalid if the memory does not fit in 64 bits.
func (s sum) with(f sharing.Fragment) (sum, error) {
	memory, err := s.memory.Add(f.Memory)
	if err != nil {
		return sum{}, err
	}
	s.memory = memory
	s.percent += f.Percent
	s.claims++
	if f.Whole {
		s.whole++
	}
	if !f.MIG.None() {
		s.place(f.MIG, 1)
	}
	return s, nil
}

// without returns s less f, which is part of it.
func (s sum) without(f sharing.Fragment) sum {
	s.memory = s.memory.SubFloor(f.Memory)
	s.percent -= f.Percent
	s.claims--
	if f.Whole {
		s.whole--
	}
	if !f.MIG.None() {
		s.place(f.MIG, -1)
	}
	return s
}

// fits reports whether a GPU can have s: enough memory and compute, as far as it may be overcommitted, and nobody
// beside one who has it whole. MIG instances fit when they are beside each other, and nothing else is on the GPU:
// their memory is the hardware's own division of it.
func (s sum) fits(g sharing.GPU) bool {
	if s.instances > 0 {
		return s.instances == s.claims && slices.Max(s.units[:]) <= 1
	}
	return s.memory <= g.Bookable() && s.percent <= g.BookablePercent() && (s.whole == 0 || s.claims == 1)
}

// over reports whether more is booked than there is. Nothing is known of a GPU that is not present.
func (g *gpu) over() bool { return g.present && !g.held.fits(g.facts) }

// overlent reports whether more is booked and lent than there is. Nothing is lent of memory that is overcommitted.
func (g *gpu) overlent() bool {
	return g.present && g.lent > g.facts.Usable().SubFloor(g.held.memory)
}

// excuse takes the books as they are for facts.
func (g *gpu) excuse() { g.excused, g.lentExcused = g.over(), g.overlent() }

// relieve ends what is excused no longer.
func (g *gpu) relieve() {
	g.excused, g.lentExcused = g.excused && g.over(), g.lentExcused && g.overlent()
}

// open reports whether new claims are taken at all.
func (g *gpu) open() bool {
	return g.present && g.facts.Health == sharing.HealthOK && g.facts.Cordoned == "" && !g.facts.MIG && g.held.whole == 0 && !g.over()
}

// free is the memory that can be booked beside there.
func (g *gpu) free(there sum) sharing.Bytes {
	if g.lent > 0 {
		return g.facts.Usable().SubFloor(there.memory).SubFloor(g.lent)
	}
	return g.facts.Bookable().SubFloor(there.memory)
}

// View is one GPU's page, for people and for the allocator.
type View struct {
	// GPU is as the last inventory had it. One that is gone from it is HealthLost, and one that no inventory
	// had yet has Index -1.
	GPU sharing.GPU
	// FreeMemory and FreePercent can be claimed now. Both are 0 on a GPU that takes no claims: not healthy,
	// cordoned, in MIG mode, held whole, or overbooked.
	FreeMemory  sharing.Bytes
	FreePercent sharing.Percent
	// HeldMemory and HeldPercent are booked, LeasedMemory is that part of HeldMemory which is in use.
	HeldMemory   sharing.Bytes
	HeldPercent  sharing.Percent
	LeasedMemory sharing.Bytes
	// LentMemory is neither free nor held: leases use it beyond their fragments, and it is to be taken back
	// before it can be claimed.
	LentMemory sharing.Bytes
	// Whole is true while a claim has the GPU for itself.
	Whole bool
	// Claims is the number of claims with a fragment here.
	Claims int
	// Overbooked is true while more is booked than the GPU has, because it shrank or because what was found
	// running did not add up.
	Overbooked bool
}

func (g *gpu) view() View {
	v := View{
		GPU: g.facts.Clone(), HeldMemory: g.held.memory, HeldPercent: g.held.percent, LeasedMemory: g.leased.memory, LentMemory: g.lent,
		Whole: g.held.whole > 0, Claims: g.held.claims, Overbooked: g.over(),
	}
	if g.open() {
		v.FreeMemory = g.free(g.held)
		v.FreePercent = g.facts.BookablePercent() - g.held.percent // open: no more than that is held
	}
	return v
}
