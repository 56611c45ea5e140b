// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// Kind tells what a container or process asks for. One container uses one kind.
type Kind uint8

// The kinds of request.
const (
	// KindShared: fragments of shared GPUs, by memory, percent or both.
	KindShared Kind = iota
	// KindWhole: whole GPUs.
	KindWhole
)

// String returns "shared" or "whole".
func (k Kind) String() string {
	if k == KindWhole {
		return "whole"
	}
	return "shared"
}

// Spread says how fragments are chosen among GPUs that fit.
type Spread uint8

// The placement policies.
const (
	// PlacePack: the tightest fit first, so that whole GPUs stay free (the default).
	PlacePack Spread = iota
	// PlaceSpread: the emptiest GPU first.
	PlaceSpread
)

// String returns "pack" or "spread".
func (s Spread) String() string {
	if s == PlaceSpread {
		return "spread"
	}
	return "pack"
}

// Request is what a container or process asks for. Amounts are totals over its fragments and divide
// evenly by GPUs. Make one with the constructors of this package, which refuse every bad form by name; a
// Request made by hand is checked by Validate.
type Request struct {
	Kind Kind
	// Memory is the total over all fragments; 0 with KindShared means "percent alone": that share of the
	// usable memory of whichever GPU. Always 0 with KindWhole.
	Memory Bytes
	// Percent is the total over all fragments, at most 100 times GPUs; 0 means compute is shared fairly.
	// Always 0 with KindWhole.
	Percent Percent
	// GPUs is the number of fragments, each on a GPU of its own, or the number of whole GPUs. At least 1.
	GPUs int
	// Models are globs over the GPU's model ("*H100*", "!*T4*"); a GPU must match one positive (if any)
	// and no negative. Matching ignores case.
	Models []string
	// UUIDs restricts the choice to these GPUs; empty means any.
	UUIDs []GPUID
	// MinLevel is the least enforcement level accepted; LevelUnknown means no demand.
	MinLevel Level
	// Place says how to choose among GPUs that fit.
	Place Spread
	// Profile is the name of the profile that the request came from, or empty.
	Profile string
}

// Fragment is the piece of one GPU that answers a request.
type Fragment struct {
	GPU GPUID
	// Memory is the guaranteed and largest amount; for a whole GPU, all that is usable.
	Memory Bytes
	// Percent is the compute share, 0..100; for a whole GPU 100.
	Percent Percent
	// Whole is true when nobody else may hold a piece of this GPU.
	Whole bool
}

// Placement is the fragments of one container or process, each on another GPU, in the order in which
// they are shown to it.
type Placement []Fragment
