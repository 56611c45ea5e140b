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

// wholeRegions are the regions of grants, each once. It needs the runtime's lock.
func wholeRegions(held map[ledger.ClaimID]*holding) []*region {
	var out []*region
	for _, h := range held {
		if h.region != nil && h.region.lost == "" && !slices.Contains(out, h.region) {
			out = append(out, h.region)
		}
	}
	return out
}

// managedIn is the managed memory of each GPU that libkerf has charged to grants. A program can write to its counters: no
// grant counts for more than its cap.
func managedIn(regions []*region) map[sharing.GPUID]sharing.Bytes {
	out := map[sharing.GPUID]sharing.Bytes{}
	for _, g := range regions {
		_ = g.use(func(open *libkerf.Region) error { // one that is spoilt is found by the upkeep
			counts := open.Counts()
			for _, u := range open.Usage() {
				var sum sharing.Bytes
				for _, c := range counts {
					sum += min(c.Managed[u.GPU], u.Limit-sum) // at most the cap: cannot wrap
				}
				out[u.GPU] += sum
			}
			return nil
		})
	}
	return out
}
