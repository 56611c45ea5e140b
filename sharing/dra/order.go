// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Use is how much of a GPU is granted. The order of a node's devices depends on this alone, so that it changes only
// when a GPU becomes empty, shared or full.
type Use uint8

// The uses, in the order in which the scheduler should try the GPUs.
const (
	// UseShared: it has shares, and room for another one.
	UseShared Use = iota
	// UseEmpty: it has no grant.
	UseEmpty
	// UseFull: a grant has it whole, or it has no memory for the smallest share.
	UseFull
)

// UseOf is the use of a GPU with so many grants, with or without the whole one, and so much free memory.
func UseOf(grants int, whole bool, memory sharing.Bytes) Use {
	switch {
	case grants == 0:
		return UseEmpty
	case whole || memory < sharing.GiB:
		return UseFull
	}
	return UseShared
}

// Ordered are the GPUs in the order in which the scheduler should try them: it takes the first device that fits. A GPU
// that is shared already comes first, so that empty ones stay free for whole GPUs. Equal GPUs are in the order of their
// index.
func Ordered(gpus []GPU, use func(sharing.GPUID) Use) []GPU {
	out := slices.Clone(gpus)
	slices.SortStableFunc(out, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(use(a.UUID), use(b.UUID)), a.Compare(&b.GPU))
	})
	return out
}
