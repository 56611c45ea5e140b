// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strconv"
	"strings"
)

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
