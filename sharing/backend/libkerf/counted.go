// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// Whole reports whether a grant has a region that is whole.
func (b *Backend) Whole(id string) bool { return b.wholeOf(id) != nil }

// Check implements backend.Backend.
func (b *Backend) Check(g backend.Grant) backend.Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	has := b.of(g.ID)
	if has == nil || has.lost != "" {
		return backend.Fault{
			Unknown: "the counters of its programs are damaged, so its enforcement is unknown: " +
				has.why()}
	}
	return backend.Fault{Bypassed: uncountedReason(has.uncounted)}
}

func (g *region) why() string {
	if g == nil {
		return "it has none"
	}
	return g.lost
}

// Managed is the managed memory of each GPU that programs of grants count, by the grants' caps. A program can write to
// its counters: no grant counts for more than its cap.
func (b *Backend) Managed(caps map[string]sharing.Placement) map[sharing.GPURef]sharing.Bytes {
	of := map[*region]sharing.Placement{}
	for id, p := range caps {
		if g := b.wholeOf(id); g != nil && len(p) > len(of[g]) {
			of[g] = p
		}
	}
	out := map[sharing.GPURef]sharing.Bytes{}
	for g, p := range of {
		_ = g.use(func(open *libkerf.UsageFile) error { // Upkeep finds one that is not whole
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
func (b *Backend) Refused(id string) map[sharing.GPURef]uint64 {
	out := map[sharing.GPURef]uint64{}
	if g := b.wholeOf(id); g != nil {
		_ = g.use(func(open *libkerf.UsageFile) error { // Upkeep finds one that is not whole
			for _, u := range open.Usage() {
				out[u.GPU] = u.Refused
			}
			return nil
		})
	}
	return out
}
