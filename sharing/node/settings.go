// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// bySettings narrows what a GPU gives to what the pool says of it.
func bySettings(s *allocator.GPUState, set config.GPUSettings, claims int) {
	s.Sharers, s.MaxSharers = claims, set.Sharers
	if s.GPU.UUID.IsPart() {
		set.Mode = config.ModeAuto // what its GPU gives is the instance
	}
	why := "gives " + set.Mode.String() + " alone, by its pool's rules"
	shares, whole := set.Mode.Shared(), set.Mode.Whole()
	if set.Exclude {
		why, shares, whole = "is left to others by its pool's rules", false, false
	}
	if !shares && s.Shut == "" {
		s.Shut = why
	}
	if !whole {
		s.NoWhole = why
	}
}

// Users are those who hold a piece of each GPU, for people: pods as namespace/name, each once, and processes.
func (r *Runtime) Users() map[sharing.GPUID][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[sharing.GPUID][]string{}
	for _, g := range r.ledger.Grants() {
		o := g.Claim.Owner
		name := o.Namespace + "/" + o.PodName
		if !o.Pod() {
			name = fmt.Sprintf("grant %s", g.Claim.ID)
		}
		for _, f := range g.Claim.Placement {
			if id := f.GPU.Device(); !slices.Contains(out[id], name) {
				out[id] = append(out[id], name)
			}
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}
