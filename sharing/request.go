// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"math"
	"slices"
)

// Kind tells what a container or process asks for. One container uses one kind.
type Kind uint8

// The kinds of request.
const (
	// KindShared: shares of GPUs, by memory, percent or both.
	KindShared Kind = iota
	// KindWhole: whole GPUs.
	KindWhole
	// KindMIG: one MIG instance.
	KindMIG
)

// String returns "shared", "whole" or "mig".
func (k Kind) String() string {
	switch k {
	case KindWhole:
		return "whole"
	case KindMIG:
		return "mig"
	case KindShared:
	}
	return "shared"
}

// Spread says how to choose among GPUs that fit.
type Spread uint8

// The placement policies.
const (
	// PlaceDefault: not said; the profile says it, else the pool, else it is PlacePack.
	PlaceDefault Spread = iota
	// PlacePack: the tightest fit first, so that whole GPUs stay free.
	PlacePack
	// PlaceSpread: the emptiest GPU first.
	PlaceSpread
)

// String returns "pack", "spread", or "default" where nothing was said.
func (s Spread) String() string {
	switch s {
	case PlacePack:
		return "pack"
	case PlaceSpread:
		return "spread"
	case PlaceDefault:
	}
	return "default"
}

// ParseSpread reads "pack" or "spread"; field names the input for the error, a *FieldError.
func ParseSpread(field, s string) (Spread, error) {
	switch s {
	case "pack":
		return PlacePack, nil
	case "spread":
		return PlaceSpread, nil
	}
	return PlaceDefault, Invalid(field, s, "write pack or spread", "is not a placement policy")
}

const (
	// MaxGPUs is the most GPUs that one request may ask for.
	MaxGPUs = 64
	// MinShare is the least memory of a share: less holds no program, and a number this small is a forgotten unit.
	MinShare = MiB

	gpusRemedy = "write a whole number of GPUs from 1 to 64"
)

// Request is what a container or process requests. Amounts are totals over its shares and divide evenly by GPUs. Make
// one with the constructors of this package, which name every problem. Validate checks a Request made by hand.
//
// A request with a profile may leave Memory, Percent and GPUs at 0. It is then open (see Open) until the profile has
// filled them, and is neither placed nor reserved before.
type Request struct {
	Kind Kind
	// Memory is the total over all shares. With KindShared, 0 means "percent alone": that percent of the allocatable
	// memory of any GPU. Always 0 with KindWhole.
	Memory Bytes
	// Percent is the total over all shares, at most 100 times GPUs. 0 means that compute is shared fairly. Always 0
	// with KindWhole and KindMIG.
	Percent Percent
	// MIG is the profile of the requested MIG instance: a name such as "1g.10gb" or "1g", or a size such as ">= 16GiB".
	// Set with KindMIG alone; then Memory is 0 and GPUs 1.
	MIG string
	// GPUs is the number of shares, each on another GPU, or the number of whole GPUs: 1 to MaxGPUs.
	GPUs int
	// Models are globs over the GPU's model ("*H100*", "!*T4*"); a GPU must match one positive (if any)
	// and no negative. Matching ignores case. See MatchModels.
	Models []string
	// ProfileModels are the profile's globs. They bind besides Models: a GPU must satisfy both lists.
	ProfileModels []string
	// UUIDs restricts the choice to these GPUs; empty means any.
	UUIDs []GPUID
	// MinLevel is the least enforcement level accepted; LevelUnknown means no demand.
	MinLevel Level
	// Place says how to choose among GPUs that fit.
	Place Spread
	// Profile is the name of the profile that the request came from, or empty.
	Profile string
	// Burst is the profile's; a request by itself has none.
	Burst Burst
}

// Open reports whether the amounts are still to come from the profile.
func (r Request) Open() bool {
	return r.Profile != "" && r.Kind != KindMIG && (r.GPUs == 0 || r.Kind == KindShared && r.Memory == 0 &&
		r.Percent == 0)
}

// Each returns the amounts of one share. Both are 0 for whole GPUs and while GPUs is not known.
func (r Request) Each() (Bytes, Percent) {
	if r.GPUs < 1 {
		return 0, 0
	}
	n := Bytes(r.GPUs)
	return r.Memory / n, Percent(Bytes(r.Percent) / n) //nolint:gosec // no more than r.Percent
}

// On returns the share that answers r on GPU g. It is all allocatable memory for a whole GPU, the percent of it for
// percent alone, and the requested amounts otherwise. It does not say whether the share fits. For a MIG instance it
// returns no share, because only the GPU's list of profiles has the amounts.
func (r Request) On(g GPU) Share {
	if r.Kind == KindMIG {
		return Share{GPU: g.Ref()}
	}
	if r.Kind == KindWhole {
		return Share{GPU: g.Ref(), Memory: g.Usable(), Percent: FullGPU, Whole: true}
	}
	memory, percent := r.Each()
	if memory == 0 {
		memory = g.Usable().Share(percent)
	}
	f := Share{GPU: g.Ref(), Memory: memory, Percent: percent}
	if !g.Contested() { // of what is promised twice, nothing is left to lend
		f.Burst = r.Burst.of(memory, g.Usable(), r.GPUs)
	}
	return f
}

// Admits reports whether r's UUIDs and model globs let it use GPU g.
func (r Request) Admits(g GPU) bool {
	if len(r.UUIDs) > 0 && !slices.Contains(r.UUIDs, g.UUID) {
		return false
	}
	return MatchModels(r.Models, g.Model) && MatchModels(r.ProfileModels, g.Model)
}

// Clone returns a copy that shares nothing with r.
func (r Request) Clone() Request {
	r.Models = slices.Clone(r.Models)
	r.ProfileModels = slices.Clone(r.ProfileModels)
	r.UUIDs = slices.Clone(r.UUIDs)
	return r
}

// String returns the request for people: "10GiB and 25% of one GPU", "2 whole GPUs".
func (r Request) String() string {
	if r.Open() {
		return fmt.Sprintf("profile %q", r.Profile)
	}
	if r.Kind == KindMIG {
		return "a MIG instance " + r.MIG
	}
	if r.Kind == KindWhole {
		if r.GPUs == 1 {
			return "1 whole GPU"
		}
		return fmt.Sprintf("%d whole GPUs", r.GPUs)
	}
	var amount string
	switch {
	case r.Percent == 0:
		amount = r.Memory.String()
	case r.Memory == 0:
		amount = r.Percent.String()
	default:
		amount = r.Memory.String() + " and " + r.Percent.String()
	}
	if r.GPUs == 1 {
		return amount + " of one GPU"
	}
	return fmt.Sprintf("%s over %d GPUs", amount, r.GPUs)
}

// Share is the part of one GPU that answers a request.
type Share struct {
	GPU GPURef
	// Memory is what is guaranteed; for a whole GPU, all that is usable.
	Memory Bytes
	// Burst is the maximum while no other grant needs the memory, more than Memory; 0 for Memory alone.
	Burst Bytes
	// Percent is the compute share, 0..100; for a whole GPU 100.
	Percent Percent
	// Whole is true if no other grant may have a share of this GPU.
	Whole bool
	// MIG is the MIG instance that the share is. Memory is then the instance's, and Percent 0. It is none for a share
	// of a GPU, or a whole one.
	MIG Instance
}

// Placement is the shares of one container or process, each on another GPU, in the order of its devices.
type Placement []Share

// GPUs are the text forms of its GPUs and shared MIG instances, in order.
func (p Placement) GPUs() []string {
	out := make([]string, 0, len(p))
	for _, f := range p {
		out = append(out, f.GPU.String())
	}
	return out
}

// Clone returns a copy that shares nothing with p.
func (p Placement) Clone() Placement { return slices.Clone(p) }

// Total returns the sums over the shares. If the memory does not fit in Bytes, it is the largest Bytes. The ledger
// accepts no such placement.
func (p Placement) Total() (Bytes, Percent) {
	var memory Bytes
	var percent Percent
	for _, f := range p {
		sum, err := memory.Add(f.Memory)
		if err != nil {
			sum = math.MaxUint64
		}
		memory, percent = sum, percent+f.Percent
	}
	return memory, percent
}

// On returns the share on GPU id, if there is one.
func (p Placement) On(id GPURef) (Share, bool) {
	for _, f := range p {
		if f.GPU == id {
			return f, true
		}
	}
	return Share{}, false
}
