// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// gpu is the accounting of one GPU.
type gpu struct {
	// facts are those of the last inventory that had it. Of a GPU that only a restored grant named, all but
	// the UUID is empty.
	facts sharing.GPU
	// present is true while the last inventory has it. A GPU that is not present and has no grants is
	// dropped.
	present bool
	// held sums the shares of all grants on this GPU, and active those of the active ones: active <= held.
	held, active sum
	// excused is true while facts have made held more than the GPU has. Otherwise held fits it.
	excused bool
	// burst is the sum of the grants' burst memory here. It fits in what held.memory leaves free, unless lentExcused is
	// true: then observed facts exceed it.
	burst        sharing.Bytes
	burstExcused bool
}

// sum adds up several shares of one GPU.
type sum struct {
	// memory does not wrap: booking refuses what would.
	memory sharing.Bytes
	// percent may exceed 100 only where facts made it so.
	percent sharing.Percent
	// grants counts the shares, and whole those that take the whole GPU: whole <= grants.
	grants, whole int
	// instances counts the shares that are MIG instances. units has their number on each memory slice.
	instances int
	units     [maxUnits]uint8
}

// maxUnits is past the placement units of any GPU.
const maxUnits = 16

// place counts a MIG instance, or with -1 takes it off again.
func (s *sum) place(in sharing.Instance, by int) {
	s.instances += by
	for u := max(0, in.Start); u < min(in.Start+in.Size, maxUnits); u++ {
		s.units[u] = uint8(int(s.units[u]) + by) //nolint:gosec // as many as grants on one GPU, and never below 0
	}
}

// with returns s and f together, or an error that wraps ErrInvalid if the memory does not fit in 64 bits.
func (s sum) with(f sharing.Share) (sum, error) {
	memory, err := s.memory.Add(f.Memory)
	if err != nil {
		return sum{}, err
	}
	s.memory = memory
	s.percent += f.Percent
	s.grants++
	if f.Whole {
		s.whole++
	}
	if !f.MIG.None() {
		s.place(f.MIG, 1)
	}
	return s, nil
}

// without returns s less f, which is part of it.
func (s sum) without(f sharing.Share) sum {
	s.memory = s.memory.SubFloor(f.Memory)
	s.percent -= f.Percent
	s.grants--
	if f.Whole {
		s.whole--
	}
	if !f.MIG.None() {
		s.place(f.MIG, -1)
	}
	return s
}

// fits reports whether a GPU has capacity for s. The memory and compute must fit within the overcommit ratio. A whole
// GPU has no other share. MIG instances must not overlap, and nothing else may be on the GPU: the hardware divides
// its memory.
func (s sum) fits(g sharing.GPU) bool {
	if s.instances > 0 {
		return s.instances == s.grants && slices.Max(s.units[:]) <= 1
	}
	return s.memory <= g.Bookable() && s.percent <= g.BookablePercent() && (s.whole == 0 || s.grants == 1)
}

// over reports whether more is booked than there is. Nothing is known of a GPU that is not present.
func (g *gpu) over() bool { return g.present && !g.held.fits(g.facts) }

// overlent reports whether reserved and burst memory exceed what exists. Overcommitted memory gives no burst memory.
func (g *gpu) overlent() bool {
	return g.present && g.burst > g.facts.Usable().SubFloor(g.held.memory)
}

// excuse accepts the present sums as facts.
func (g *gpu) excuse() { g.excused, g.burstExcused = g.over(), g.overlent() }

// relieve ends what is excused no longer.
func (g *gpu) relieve() {
	g.excused, g.burstExcused = g.excused && g.over(), g.burstExcused && g.overlent()
}

// open reports whether new grants are taken at all.
func (g *gpu) open() bool {
	return g.present && g.facts.Health == sharing.HealthOK && g.facts.Cordoned == "" && !g.facts.MIG &&
		g.held.whole == 0 && !g.over()
}

// free is the memory that can still be reserved.
func (g *gpu) free(there sum) sharing.Bytes {
	if g.burst > 0 {
		return g.facts.Usable().SubFloor(there.memory).SubFloor(g.burst)
	}
	return g.facts.Bookable().SubFloor(there.memory)
}

// View is one GPU's page, for people and for the allocator.
type View struct {
	// GPU is as the last inventory had it. One that is gone from it is HealthLost, and one that no inventory
	// had yet has Index -1.
	GPU sharing.GPU
	// FreeMemory and FreePercent can be reserved now. Both are 0 on a GPU that takes no grants: not healthy,
	// cordoned, in MIG mode, held whole, or overbooked.
	FreeMemory  sharing.Bytes
	FreePercent sharing.Percent
	// GrantedMemory and GrantedPercent are booked, ActiveMemory is that part of GrantedMemory which is in use.
	GrantedMemory  sharing.Bytes
	GrantedPercent sharing.Percent
	ActiveMemory   sharing.Bytes
	// BurstMemory is burst memory in use. The ledger must take it back before a grant can reserve it.
	BurstMemory sharing.Bytes
	// Whole is true while a grant has the GPU for itself.
	Whole bool
	// Grants is the number of grants with a share here.
	Grants int
	// Overbooked is true while more is booked than the GPU has, because it shrank or because what was found
	// running did not add up.
	Overbooked bool
}

func (g *gpu) view() View {
	v := View{
		GPU: g.facts.Clone(), GrantedMemory: g.held.memory, GrantedPercent: g.held.percent,
		ActiveMemory: g.active.memory,
		BurstMemory:  g.burst,
		Whole:        g.held.whole > 0, Grants: g.held.grants, Overbooked: g.over(),
	}
	if g.open() {
		v.FreeMemory = g.free(g.held)
		v.FreePercent = g.facts.BookablePercent() - g.held.percent // open: no more than that is held
	}
	return v
}
