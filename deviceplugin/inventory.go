// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// MaxIDs is the most ids of one resource, and the most that one call of kubelet may name.
	MaxIDs = 10000
	// NoNUMA is the NUMA node of a GPU whose node is not known.
	NoNUMA = -1
)

// Unit is one GPU as advertised to kubelet.
type Unit struct {
	GPU sharing.GPURef
	// NUMA is its node, 0 to sharing.MaxNUMA-1. Anything else is NoNUMA.
	NUMA int
	// GiB is what it offers: its usable memory in whole GiB, rounded down, or more where that is overcommitted. Percent
	// is what it offers of its compute; 0 means all of it once.
	GiB, Percent int
	// InMIGMode is true for a GPU in MIG mode, which gives neither percent nor a whole GPU.
	InMIGMode bool
	// NoShare is true for one that gives no fractions though others of the node do, and NoWhole for one that is not
	// given whole.
	NoShare, NoWhole bool
	// MIG are the instances that it can have, each profile at most once; none for a GPU without MIG support. A GPU that
	// is not InMIGMode and has some switches its MIG mode with demand, and counts for both.
	MIG []Instances
	// Lost is true while nothing can run on it. It is counted all the same.
	Lost bool
}

// Instances are MIG instances of one profile.
type Instances struct {
	// Resource is as sharing.MIGResource names it.
	Resource string `json:"resource"`
	// Count is how many there can be at once, at least 1.
	Count int `json:"count"`
}

// Inventory is what a node offers.
type Inventory struct {
	// Units are all GPUs that are to be counted, the lost ones too: one that is left out is withdrawn.
	Units []Unit
	// Memory, Percent and Whole say which resources are advertised: gpu-memory-gib, gpu-percent, gpu; and MIG that
	// those of MIG profiles are.
	Memory, Percent, Whole, MIG bool
}

// fixed are the resources that a plugin may advertise on any node.
func fixed() []string {
	return []string{sharing.ResourceMemory, sharing.ResourcePercent, sharing.ResourceGPU}
}

// profiles are the resources of MIG profiles that the units have, sorted.
func (inv Inventory) profiles() []string {
	var out []string
	for _, u := range inv.Units {
		for _, m := range u.MIG {
			out = append(out, m.Resource)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// advertises reports whether new containers may ask for the resource.
func (inv Inventory) advertises(resource string) bool {
	switch resource {
	case sharing.ResourceMemory:
		return inv.Memory
	case sharing.ResourcePercent:
		return inv.Percent
	case sharing.ResourceGPU:
		return inv.Whole
	}
	return inv.MIG
}

// ids is how many ids of the resource the unit is.
func (u Unit) ids(resource string) int {
	switch resource {
	case sharing.ResourceMemory:
		if u.NoShare && !u.InMIGMode {
			return 0
		}
		return u.GiB
	case sharing.ResourcePercent:
		if u.InMIGMode || u.NoShare {
			return 0
		}
		return max(int(sharing.FullGPU), u.Percent)
	case sharing.ResourceGPU:
		if u.InMIGMode || u.NoWhole {
			return 0
		}
		return 1
	}
	for _, m := range u.MIG {
		if m.Resource == resource {
			return m.Count
		}
	}
	return 0
}

// checked returns a copy in the order in which ids are given out. The order depends on the hardware alone, so that a
// whole GPU's id keeps its NUMA node over restarts. The error is a *sharing.FieldError.
func (inv Inventory) checked() (Inventory, error) {
	if len(inv.Units) == 0 {
		return Inventory{}, sharing.Invalid("units", "", "name every GPU, and mark those that are gone as lost",
			"are missing")
	}
	inv.Units = slices.Clone(inv.Units)
	seen := make(map[sharing.GPURef]bool, len(inv.Units))
	for i, u := range inv.Units {
		if u.NUMA < 0 || u.NUMA >= sharing.MaxNUMA {
			inv.Units[i].NUMA = NoNUMA
		}
		if u.GPU == (sharing.GPURef{}) || seen[u.GPU] {
			return Inventory{}, sharing.Invalid("units", u.GPU.String(), "name every GPU once", "are not distinct")
		}
		if u.Percent < 0 || u.Percent > MaxIDs {
			return Inventory{}, sharing.Invalid("units", fmt.Sprint(u.Percent), "",
				"of GPU %q are no percent from 0 to %d", u.GPU, MaxIDs)
		}
		if u.GiB < 0 || u.GiB > MaxIDs {
			return Inventory{}, sharing.Invalid("units", fmt.Sprint(u.GiB), "",
				"of GPU %q are no number of GiB from 0 to %d", u.GPU, MaxIDs)
		}
		for k, m := range u.MIG {
			if !sharing.IsMIGResource(m.Resource) || m.Count < 1 || m.Count > MaxIDs ||
				slices.ContainsFunc(u.MIG[:k], func(o Instances) bool { return o.Resource == m.Resource }) {
				return Inventory{}, sharing.Invalid("units", m.Resource, "name each profile once",
					"of GPU %q are no number of instances of a profile (%d)", u.GPU, m.Count)
			}
		}
		inv.Units[i].MIG = slices.Clone(u.MIG)
		seen[u.GPU] = true
	}
	slices.SortStableFunc(inv.Units, func(a, b Unit) int { return cmp.Compare(a.NUMA, b.NUMA) })
	for _, r := range append(fixed(), inv.profiles()...) {
		if n := inv.total(r); n > MaxIDs {
			return Inventory{}, sharing.Invalid("units", fmt.Sprint(n), "", "of %s are more than %d", r, MaxIDs)
		}
	}
	return inv, nil
}

// equal reports whether both are the same; both have been checked.
func (inv Inventory) equal(o Inventory) bool {
	return inv.Memory == o.Memory && inv.Percent == o.Percent && inv.Whole == o.Whole && inv.MIG == o.MIG &&
		slices.EqualFunc(inv.Units, o.Units, func(a, b Unit) bool {
			return a.GPU == b.GPU && a.NUMA == b.NUMA && a.GiB == b.GiB && a.Percent == b.Percent && a.Lost == b.Lost &&
				a.InMIGMode == b.InMIGMode && a.NoShare == b.NoShare && a.NoWhole == b.NoWhole &&
				slices.Equal(a.MIG, b.MIG)
		})
}

func (inv Inventory) total(resource string) int {
	n := 0
	for _, u := range inv.Units {
		n += u.ids(resource)
	}
	return n
}

// form is how ids of a resource are written: a letter, and a number of so many digits at least.
func form(resource string) (letter string, width int) {
	if resource == sharing.ResourceGPU {
		return "g", 2
	}
	return "u", 4
}

// id is the name of the nth unit of a resource, n from 1: "u0001", or "g01" for a whole GPU.
func id(resource string, n int) string {
	letter, width := form(resource)
	return fmt.Sprintf("%s%0*d", letter, width, n)
}

// number is the inverse of id; ok is false for other strings. It builds no new strings: kubelet names all free ids
// whenever it admits a container.
func number(resource, s string) (n int, ok bool) {
	letter, width := form(resource)
	digits, ok := strings.CutPrefix(s, letter)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > MaxIDs || digits[0] == '+' || len(digits) < width || len(digits) > width &&
		digits[0] == '0' {
		return 0, false
	}
	return n, true
}
