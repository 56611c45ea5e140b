// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// window is the size of a GPU's range of addresses, four times the largest memory that a model may have.
	window = 1 << 46
	// pageSize is the distance between addresses.
	pageSize = 2 << 20
)

// addresses gives out ranges that do not overlap with any living one of the same GPU or of another, and so
// are unique in every process. It goes through its window before it uses an address again.
type addresses struct {
	base, next uint64
	live       map[uint64]uint64 // start to end
	wrapped    bool
}

func newAddresses(index int) addresses {
	base := uint64(index+1) * window // #nosec G115 -- fewer than 64 GPUs
	return addresses{base: base, next: base, live: map[uint64]uint64{}}
}

// get returns a free range's start; false when there is none.
func (a *addresses) get(bytes sharing.Bytes) (uint64, bool) {
	if bytes == 0 || bytes > window {
		return 0, false
	}
	size := (uint64(bytes) + pageSize - 1) / pageSize * pageSize
	if a.wrapped || a.base+window-a.next < size {
		a.wrapped = true
		return a.search(size)
	}
	at := a.next
	a.next += size
	a.live[at] = a.next
	return at, true
}

// search finds the first gap at or after next, going around once.
func (a *addresses) search(size uint64) (uint64, bool) {
	starts := slices.Sorted(maps.Keys(a.live))
	for _, from := range []uint64{a.next, a.base} {
		at := from
		for _, s := range starts {
			if a.live[s] <= at {
				continue
			}
			if s >= at && s-at >= size {
				break
			}
			at = a.live[s]
		}
		if a.base+window-at >= size {
			a.next = at + size
			a.live[at] = a.next
			return at, true
		}
	}
	return 0, false
}

func (a *addresses) put(at uint64) { delete(a.live, at) }
