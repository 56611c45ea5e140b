// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// Whole reports whether a grant has a region that is whole.
func (b *Backend) Whole(id string) bool { return b.wholeOf(id) != nil }

// Doubt is why it is not known what programs of a grant hold, "" if it is known. uncounted says which of its processes
// do not count, if any.
func (b *Backend) Doubt(id string) (doubt, uncounted string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.of(id)
	if g == nil || g.lost != "" {
		return g.why(), ""
	}
	return "", uncountedReason(g.uncounted)
}

func (g *region) why() string {
	if g == nil {
		return "it has none"
	}
	return g.lost
}

// Managed is the managed memory of each GPU that programs of grants count, by the grants' caps. A program can write to its
// counters: no grant counts for more than its cap.
func (b *Backend) Managed(caps map[string]sharing.Placement) map[sharing.GPUID]sharing.Bytes {
	of := map[*region]sharing.Placement{}
	for id, p := range caps {
		if g := b.wholeOf(id); g != nil && len(p) > len(of[g]) {
			of[g] = p
		}
	}
	out := map[sharing.GPUID]sharing.Bytes{}
	for g, p := range of {
		_ = g.use(func(open *libkerf.Region) error { // Upkeep finds one that is not whole
			counts := open.Counts()
			for _, f := range p {
				var sum sharing.Bytes
				for _, one := range counts {
					sum += min(one.Managed[f.GPU], f.Memory-sum) // at most the cap: cannot wrap
				}
				out[f.GPU] += sum
			}
			return nil
		})
	}
	return out
}

// Refused is how many calls of a grant's programs were refused on each GPU; empty if its region is not whole.
func (b *Backend) Refused(id string) map[sharing.GPUID]uint64 {
	out := map[sharing.GPUID]uint64{}
	if g := b.wholeOf(id); g != nil {
		_ = g.use(func(open *libkerf.Region) error { // Upkeep finds one that is not whole
			for _, u := range open.Usage() {
				out[u.GPU] = u.Refused
			}
			return nil
		})
	}
	return out
}
