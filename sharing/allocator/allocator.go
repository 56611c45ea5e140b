// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package allocator chooses the GPUs of one node for a request.
//
// It is a pure function of the GPUs' state and the request: the same input gives the same placement, in any order of
// the GPUs. The result fits the given state. The ledger checks it again when it reserves it.
//
// For shares it chooses among the GPUs that fit. It prefers a shared GPU to a free one, so that whole GPUs stay free.
// Then it takes the GPU with the least memory and compute left, as parts of that GPU, and then the lowest index.
// PlaceSpread turns this around. Whole GPUs: see whole.go.
//
// It does not choose among nodes, and it reads no profile or pool: the request is complete.
package allocator

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// GPUState is what the choice depends on of one GPU.
type GPUState struct {
	GPU sharing.GPU
	// FreeMemory and FreePercent are what can be claimed now.
	FreeMemory  sharing.Bytes
	FreePercent sharing.Percent
	// Burst is the burst memory of active grants: it is neither free nor guaranteed. The choice only reports it.
	Burst sharing.Bytes
	// InUse is true while any claim is on the GPU.
	InUse bool
	// Levels are the enforcement levels that a grant on this GPU can have. Exclusive and hardware do not count here:
	// a whole GPU is exclusive, and a share never is.
	Levels []sharing.Level
	// MinLevel is demanded of every share of it, besides what the request demands. See Least.
	MinLevel sharing.Level
	// LevelReason says why a share has no higher level, and the remedy; it may be empty.
	LevelReason string
	// ShareCount is the number of claims with a share of it, and MaxShares the maximum; 0 for no maximum.
	ShareCount, MaxShares int
	// NoWhole says why it is not given whole, as a clause; empty: it is.
	NoWhole string
	//
	// ModeSwitchable is true if pending requests may change the MIG mode of the GPU. Then its mode rules out no request
	// for ever.
	ModeSwitchable bool
	// Shut says why the GPU can give no share while its present claims exist, as a clause. It is empty if it can.
	Shut string
}

// Choose returns the placement for the request, shares by GPU index, or an error. The error *NoFit means that no GPU is
// free (ErrExhausted), or that none here can ever fit (ErrUnsupported). ErrInvalid means a wrong request or list of
// GPUs.
func Choose(gpus []GPUState, r sharing.Request) (sharing.Placement, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("choose gpus: %w", err)
	}
	if r.Open() {
		return nil, fmt.Errorf("choose gpus: profile %q has not filled the request: %w", r.Profile, sharing.ErrInvalid)
	}
	gpus, err := ordered(gpus)
	if err != nil {
		return nil, fmt.Errorf("choose gpus: %w", err)
	}
	var fit []GPUState
	verdicts := make([]Verdict, len(gpus))
	for i, g := range gpus {
		verdicts[i] = Fit(g, r)
		if verdicts[i].Fits() {
			fit = append(fit, g)
		}
	}
	if len(fit) < r.GPUs {
		return nil, noFit(gpus, verdicts, r)
	}
	var chosen []GPUState
	if r.Kind == sharing.KindWhole {
		chosen = chooseWhole(fit, r.GPUs)
	} else {
		chosen = chooseShared(fit, r)
	}
	sortByIndex(chosen)
	placement := make(sharing.Placement, 0, len(chosen))
	for _, g := range chosen {
		placement = append(placement, r.On(g.GPU))
	}
	return placement, nil
}

// ordered returns the GPUs by index and UUID, so that nothing depends on the caller's order.
func ordered(gpus []GPUState) ([]GPUState, error) {
	out := slices.Clone(gpus)
	sortByIndex(out)
	seen := make(map[sharing.GPURef]bool, len(out))
	for i := range out {
		id := out[i].GPU.Ref()
		if seen[id] {
			return nil, fmt.Errorf("gpu %q is listed twice: %w", id, sharing.ErrInvalid)
		}
		seen[id] = true
	}
	return out, nil
}

func sortByIndex(gpus []GPUState) {
	slices.SortFunc(gpus, func(a, b GPUState) int { return a.GPU.Compare(&b.GPU) })
}

// chooseShared returns the best r.GPUs of the GPUs that fit; they come by index, and so ties go.
func chooseShared(fit []GPUState, r sharing.Request) []GPUState {
	type ranked struct {
		left uint64
		at   int
	}
	ranks := make([]ranked, len(fit))
	for i := range fit {
		ranks[i] = ranked{leftover(fit[i], r.On(fit[i].GPU)), i}
	}
	slices.SortStableFunc(ranks, func(a, b ranked) int {
		order := cmp.Or(heldFirst(&fit[a.at], &fit[b.at]), cmp.Compare(a.left, b.left))
		if r.Place == sharing.PlaceSpread {
			return -order
		}
		return order
	})
	out := make([]GPUState, 0, r.GPUs)
	for _, one := range ranks[:r.GPUs] {
		out = append(out, fit[one.at])
	}
	return out
}

func heldFirst(a, b *GPUState) int {
	switch {
	case a.InUse == b.InUse:
		return 0
	case a.InUse:
		return -1
	}
	return 1
}

// leftover is what the share leaves free on the GPU. It adds the fractions of its memory and of its compute, each in
// 2^-32. f fits g.
func leftover(g GPUState, f sharing.Share) uint64 {
	const one = 32
	all := g.GPU.Bookable()
	memory := min(g.FreeMemory, all).SubFloor(f.Memory)
	// memory < all, since f.Memory > 0: the quotient is below 2^32.
	q, _ := bits.Div64(uint64(memory)>>(64-one), uint64(memory)<<one, uint64(all))
	percent := min(g.FreePercent, g.GPU.BookablePercent()) - f.Percent
	return q + uint64(percent)<<one/uint64(g.GPU.BookablePercent())
}
