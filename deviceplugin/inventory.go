// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// MaxIDs is the most ids of one resource, and the most that one call of kubelet may name.
	MaxIDs = 10000
	// NoNUMA is the NUMA node of a GPU whose node is not known.
	NoNUMA = -1
)

// Unit is one GPU as kubelet is told of it.
type Unit struct {
	UUID sharing.GPUID
	// NUMA is its node, 0 to sharing.MaxNUMA-1. Anything else is NoNUMA.
	NUMA int
	// GiB is what it offers: its usable memory in whole GiB, rounded down.
	GiB int
	// Lost is true while nothing can run on it. It is counted all the same.
	Lost bool
}

// Inventory is what a node offers.
type Inventory struct {
	// Units are all GPUs that are to be counted, the lost ones too: one that is left out is withdrawn.
	Units []Unit
	// Memory, Percent and Whole say which resources are advertised: gpu-memory-gib, gpu-percent, gpu.
	Memory, Percent, Whole bool
}

// resources are all that a plugin may advertise.
func resources() []string {
	return []string{sharing.ResourceMemory, sharing.ResourcePercent, sharing.ResourceGPU}
}

// advertises reports whether new containers may ask for the resource.
func (inv Inventory) advertises(resource string) bool {
	switch resource {
	case sharing.ResourceMemory:
		return inv.Memory
	case sharing.ResourcePercent:
		return inv.Percent
	default:
		return inv.Whole
	}
}

// ids is how many ids of the resource the unit is.
func (u Unit) ids(resource string) int {
	switch resource {
	case sharing.ResourceMemory:
		return u.GiB
	case sharing.ResourcePercent:
		return int(sharing.FullGPU)
	default:
		return 1
	}
}

// checked returns a copy in the order in which ids are given out: it depends on the hardware alone, so that
// a whole GPU's id keeps its NUMA node over restarts. The error is a *sharing.FieldError.
func (inv Inventory) checked() (Inventory, error) {
	if len(inv.Units) == 0 {
		return Inventory{}, sharing.Invalid("units", "", "name every GPU, and mark those that are gone as lost", "are missing")
	}
	inv.Units = slices.Clone(inv.Units)
	seen := make(map[sharing.GPUID]bool, len(inv.Units))
	for i, u := range inv.Units {
		if u.NUMA < 0 || u.NUMA >= sharing.MaxNUMA {
			inv.Units[i].NUMA = NoNUMA
		}
		if u.UUID == "" || seen[u.UUID] {
			return Inventory{}, sharing.Invalid("units", string(u.UUID), "name every GPU once", "are not distinct")
		}
		if u.GiB < 0 || u.GiB > MaxIDs {
			return Inventory{}, sharing.Invalid("units", fmt.Sprint(u.GiB), "", "of GPU %q are no number of GiB from 0 to %d", u.UUID, MaxIDs)
		}
		seen[u.UUID] = true
	}
	slices.SortStableFunc(inv.Units, func(a, b Unit) int { return cmp.Compare(a.NUMA, b.NUMA) })
	for _, r := range resources() {
		if n := inv.total(r); n > MaxIDs {
			return Inventory{}, sharing.Invalid("units", fmt.Sprint(n), "", "of %s are more than %d", r, MaxIDs)
		}
	}
	return inv, nil
}

// equal reports whether both are the same; both have been checked.
func (inv Inventory) equal(o Inventory) bool {
	return inv.Memory == o.Memory && inv.Percent == o.Percent && inv.Whole == o.Whole && slices.Equal(inv.Units, o.Units)
}

func (inv Inventory) total(resource string) int {
	n := 0
	for _, u := range inv.Units {
		n += u.ids(resource)
	}
	return n
}
