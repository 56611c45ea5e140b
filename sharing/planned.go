// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strconv"
	"strings"
)

// PlannedMIG is where a scheduler wants a MIG instance to be cut.
type PlannedMIG struct {
	// Profile is the driver's name for it, such as "1g.10gb".
	Profile string
	// Start is its first placement unit, from 0.
	Start int
}

// maxUnits is more than the placement units of any GPU.
const maxUnits = 64

// PlacementValue is a placement as the scheduler writes it under PlacementAnnotation: the GPUs' UUIDs, with commas
// between them, and for a MIG instance "/1g.10gb@6" behind its GPU's, the profile and its first placement unit.
// A part's id says the same of the instance that the share is of.
func PlacementValue(p Placement) string {
	parts := make([]string, 0, len(p))
	for _, f := range p {
		id := f.GPU
		if !f.MIG.None() {
			id = PartID(id, f.MIG)
		}
		parts = append(parts, string(id))
	}
	return strings.Join(parts, ",")
}

// Planned reads the placement that the scheduler wrote for a container. It is advice: of what cannot be read, and of a
// MIG instance beside others, nothing is.
func Planned(annotations map[string]string, container string) Advice {
	var a Advice
	for s := range strings.SplitSeq(annotations[PlacementAnnotation(container)], ",") {
		uuid, at, cut := strings.Cut(strings.TrimSpace(s), partSep)
		id, err := ParseGPUID(placementKey+container, uuid)
		if err != nil || a.MIG.Profile != "" || cut && len(a.GPUs) > 0 {
			return Advice{}
		}
		a.GPUs = append(a.GPUs, id)
		if !cut {
			continue
		}
		slot, ok := parseSlot(at)
		if !ok {
			return Advice{}
		}
		a.MIG = slot
	}
	return a
}

// parseSlot reads "1g.10gb@6".
func parseSlot(at string) (PlannedMIG, bool) {
	profile, start, ok := strings.Cut(at, "@")
	n, err := strconv.Atoi(start)
	if !ok || err != nil || n < 0 || n >= maxUnits || strconv.Itoa(n) != start || !migProfile.MatchString(profile) {
		return PlannedMIG{}, false
	}
	return PlannedMIG{Profile: profile, Start: n}, true
}

// Shares are the ids that the advice names for a request of shares: its GPUs, or the part of one.
func (a Advice) Shares() []GPUID {
	if a.MIG.Profile == "" {
		return a.GPUs
	}
	return []GPUID{PartID(a.GPUs[0], Instance{Profile: a.MIG.Profile, Start: a.MIG.Start})}
}
