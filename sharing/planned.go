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

// partSep stands between a GPU's UUID and its instance, in the ids of parts as in planned placements.
const partSep = "/"

// PartID is the id of a MIG instance that is shared, "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f/3g.40gb@4": the GPU, the
// profile and the first placement unit. It stays the same when the instance is made anew.
func PartID(gpu GPUID, in Instance) GPUID {
	return gpu + GPUID(partSep+in.Profile+"@"+strconv.Itoa(in.Start))
}

// Device is the GPU itself: id, or for a part the GPU that it is of.
func (id GPUID) Device() GPUID {
	gpu, _, _ := strings.Cut(string(id), partSep)
	return GPUID(gpu)
}

// IsPart reports whether id is a shared MIG instance's.
func (id GPUID) IsPart() bool { return strings.Contains(string(id), partSep) }

// Slot is the profile and the first placement unit that the id of a part names; false for any other id.
func (id GPUID) Slot() (PlannedMIG, bool) {
	_, at, part := strings.Cut(string(id), partSep)
	if !part {
		return PlannedMIG{}, false
	}
	return parseSlot(at)
}

// Cut reports whether the fragment lies in a MIG instance: it is all of it, or a share of one that is shared.
func (f Fragment) Cut() bool { return !f.MIG.None() || f.GPU.IsPart() }

// WhyNotPart says why no part of that id answers the request, whatever is free of it; empty where one can, and for a GPU
// of its own.
func (r Request) WhyNotPart(id GPUID) string {
	switch {
	case !id.IsPart():
		return ""
	case r.Kind == KindWhole:
		return "is a MIG instance that is shared, and no whole GPU"
	case r.Kind == KindMIG:
		return "is a MIG instance that is shared, and not given whole"
	case r.GPUs > 1:
		return "is a MIG instance, of which a program uses one at a time"
	case r.Percent > 0:
		return "is a MIG instance that is shared, of which memory is given and no percent of a GPU"
	}
	return ""
}
