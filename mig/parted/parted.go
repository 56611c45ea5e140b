// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package parted reads the configuration of NVIDIA's mig-parted and says what each of its named configs means for a
// GPU: MIG on or off, and which instances.
//
// It takes what mig-parted takes: version v1, device filters with and without subsystem, lists of devices, names of
// profiles; it refuses what mig-parted refuses, all mistakes at once and with their lines. It refuses
// one thing more, names of compute instances (1c.3g.20gb): Kerf divides an instance in another way. Anchors and merge
// keys of YAML may be used.
//
// It reads no file and changes no GPU. Where an instance goes is decided by package plan; mig-parted has no word for
// it either.
package parted

import (
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// Document is what a file says.
type Document struct {
	// Configs are in the file's order; their names differ.
	Configs []Config
}

// Config is one named config.
type Config struct {
	Name    string
	Entries []Entry // at least one
}

// Entry says what some of the GPUs should have.
type Entry struct {
	// Filters are the products that are meant; none means all.
	Filters []Filter
	// All means every GPU of a node; otherwise it is those of the NVML indexes in Devices.
	All     bool
	Devices []int
	// Enabled is MIG mode.
	Enabled bool
	// Instances are in the file's order; none where Enabled is false.
	Instances []Count
	// field is the path of mig-devices, for errors.
	field string
}

// Count is a number of instances of one profile.
type Count struct {
	Wish mig.Wish
	N    int // not negative
}

// Filter is a product by its PCI ids, each with the device in the upper and the vendor in the lower 16 bits.
type Filter struct {
	Device uint32
	// Subsystem is 0 where every board with the device is meant.
	Subsystem uint32
}

// GPU is what a config asks of a GPU to know whether it is meant; the ids are as in Filter.
type GPU struct {
	Index             int // NVML's
	Device, Subsystem uint32
}

// Config returns the config of that name. The error is a *sharing.FieldError that lists those that there are.
func (d Document) Config(field, name string) (Config, error) {
	names := make([]string, len(d.Configs))
	for i, c := range d.Configs {
		if c.Name == name {
			return c, nil
		}
		names[i] = c.Name
	}
	return Config{}, sharing.Invalid(field, name, "write one of "+strings.Join(names, ", "), "is no config of the document")
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

// Layout is what the entry wants of a GPU with that table, for plan.Ask with Exact: the largest instances first,
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
