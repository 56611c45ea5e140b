// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// setManaged applies the pool's rule for managed memory before the first program of the grant starts. The upkeep applies a
// later one.
func (g *region) setManaged(rule config.ManagedMemory) error {
	return g.use(func(open *libkerf.Region) error {
		open.RejectManaged(rule == config.ManagedReject)
		return nil
	})
}

// managedCaveat says what the level of a share leaves open because of managed memory; empty for levels that count all memory,
// and for a level that is not known.
func managedCaveat(rule config.ManagedMemory, level sharing.Level, b config.Backend) string {
	switch level {
	case sharing.LevelReactive:
		b = config.BackendReactive // also where it stands in for a stronger backend
	case sharing.LevelNone:
		b = config.BackendNone
	case sharing.LevelClient, sharing.LevelDriver:
	case sharing.LevelUnknown, sharing.LevelHardware, sharing.LevelExclusive:
		return ""
	}
	return rule.Caveat(b)
}

// counting is a region of grants, and their caps by the ledger: programs may have written to the region's own.
type counting struct {
	region *region
	caps   sharing.Placement
}

// countings are the regions of grants, each once. It needs the runtime's lock.
func countings(grants []ledger.Grant, held map[ledger.ClaimID]*holding) []counting {
	var out []counting
	for _, g := range grants {
		h := held[g.Claim.ID]
		if h == nil || h.region == nil || h.region.lost != "" || slices.ContainsFunc(out, func(c counting) bool { return c.region == h.region }) {
			continue
		}
		out = append(out, counting{h.region, g.Caps()})
	}
	return out
}

// managedIn is the managed memory of each GPU that libkerf has charged to grants. A program can write to its counters: no
// grant counts for more than its cap.
func managedIn(all []counting) map[sharing.GPUID]sharing.Bytes {
	out := map[sharing.GPUID]sharing.Bytes{}
	for _, c := range all {
		_ = c.region.use(func(open *libkerf.Region) error { // one that is spoilt is found by the upkeep
			counts := open.Counts()
			for _, f := range c.caps {
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
