// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package parted

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
)

// GPU is what a config asks of a GPU to know whether it is meant; the ids are as in Filter.
type GPU struct {
	Index             int // NVML's
	Device, Subsystem uint32
}

// For returns the entry that holds for the GPU: of several, the last one, since mig-parted applies them in their
// order. It is false where none is meant for the GPU, which is then left as it is.
func (c Config) For(gpu GPU) (Entry, bool) {
	for _, e := range slices.Backward(c.Entries) {
		if e.matches(gpu) {
			return e, true
		}
	}
	return Entry{}, false
}

func (e Entry) matches(gpu GPU) bool {
	if !e.All && !slices.Contains(e.Devices, gpu.Index) {
		return false
	}
	return len(e.Filters) == 0 || slices.ContainsFunc(e.Filters, func(f Filter) bool {
		return f.Device == gpu.Device && (f.Subsystem == 0 || f.Subsystem == gpu.Subsystem)
	})
}

// Layout is what the entry wants of a GPU with that table, for plan.Request with Exact: the largest instances first,
// each in any place. An error names the profile that the GPU has not, as a *sharing.FieldError, or shows why the
// instances do not fit together; it wraps sharing.ErrInvalid.
func (e Entry) Layout(t *mig.Table) ([]plan.Wish, error) {
	counts := map[int]int{}
	for _, c := range e.Instances {
		p, err := t.Find(e.field, c.Wish)
		if err != nil {
			return nil, err
		}
		counts[p.ID] += min(c.N, plan.MaxWishes+1) // more is too many in any case
	}
	var wishes []plan.Wish
	for _, p := range slices.Backward(t.Profiles()) {
		for range min(counts[p.ID], plan.MaxWishes+1) {
			wishes = append(wishes, plan.Wish{Profile: p.ID, Start: plan.Any, For: "layout"})
		}
	}
	if err := plan.Possible(t, wishes); err != nil {
		return nil, err
	}
	return wishes, nil
}
