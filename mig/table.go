// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Bounds of a Table: past any GPU that there is, and small enough for a table of all masks.
const (
	// MaxAxis is the largest number of placement units of a GPU.
	MaxAxis = 16
	// MaxProfiles is the largest number of profiles of a GPU.
	MaxProfiles = 32
)

// Profile is one size of instance that a GPU offers, as the driver reports it.
type Profile struct {
	// ID is the driver's number for it, which nvidia-smi prints; it is unique on the GPU and not negative.
	ID int
	// Name is the driver's name without its "MIG " in front: "1g.10gb", "1g.10gb+me".
	Name string
	// Compute is the number of compute slices.
	Compute int
	// Memory is what programs can use of it.
	Memory sharing.Bytes
	// SMs is the number of multiprocessors, for display.
	SMs int
	// MaxInstances is the largest number of such instances on an empty GPU.
	MaxInstances int
	Engines      Engines
	// Size is the length of its stretch of the axis, in placement units, and Starts are the units at which it
	// may begin, ascending.
	Size   int
	Starts []int
}

// Engines are the media engines of an instance, or of a GPU.
type Engines struct {
	Decoders, Encoders, JPEGs, OFAs int
}

func (e Engines) plus(f Engines) Engines {
	return Engines{e.Decoders + f.Decoders, e.Encoders + f.Encoders, e.JPEGs + f.JPEGs, e.OFAs + f.OFAs}
}

func (e Engines) minus(f Engines) Engines {
	return Engines{e.Decoders - f.Decoders, e.Encoders - f.Encoders, e.JPEGs - f.JPEGs, e.OFAs - f.OFAs}
}

func (e Engines) within(f Engines) bool {
	return e.Decoders <= f.Decoders && e.Encoders <= f.Encoders && e.JPEGs <= f.JPEGs && e.OFAs <= f.OFAs
}

// Place is a stretch of a GPU for an instance. With the GPU's UUID it identifies the instance: the driver's instance
// ids and MIG UUIDs change each time.
type Place struct {
	Profile int // ID
	Start   int // placement unit
}

// Table is the MIG geometry of one GPU. NewTable creates it.
type Table struct {
	profiles []Profile
	masks    [][]Mask // of each profile, in the order of its starts
	axis     int
	compute  int
	engines  Engines
}

// NewTable checks what the driver reported. Profiles are kept in order of size: memory units, compute slices,
// memory, id. An error wraps sharing.ErrUnsupported where the GPU is past the bounds of this package, else
// sharing.ErrInvalid, and names the profile.
func NewTable(profiles []Profile) (*Table, error) {
	if len(profiles) == 0 {
		return nil, fmt.Errorf("the GPU reports no MIG profile: %w", sharing.ErrUnsupported)
	}
	if len(profiles) > MaxProfiles {
		return nil, fmt.Errorf("the GPU reports %d MIG profiles, more than %d: %w", len(profiles), MaxProfiles,
			sharing.ErrUnsupported)
	}
	t := &Table{}
	for _, p := range profiles {
		p.Starts = slices.Clone(p.Starts)
		slices.Sort(p.Starts)
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("MIG profile %q (id %d): %w", p.Name, p.ID, err)
		}
		for _, q := range t.profiles {
			if q.ID == p.ID || q.Name == p.Name {
				return nil, fmt.Errorf("MIG profiles %q (id %d) and %q (id %d) have one name or id: %w", q.Name, q.ID,
					p.Name, p.ID, sharing.ErrInvalid)
			}
		}
		t.profiles = append(t.profiles, p)
		t.axis = max(t.axis, p.Starts[len(p.Starts)-1]+p.Size)
		t.compute = max(t.compute, p.Compute)
		t.engines.Decoders = max(t.engines.Decoders, p.Engines.Decoders)
		t.engines.Encoders = max(t.engines.Encoders, p.Engines.Encoders)
		t.engines.JPEGs = max(t.engines.JPEGs, p.Engines.JPEGs)
		t.engines.OFAs = max(t.engines.OFAs, p.Engines.OFAs)
	}
	slices.SortFunc(t.profiles, func(a, b Profile) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Compute, b.Compute), cmp.Compare(a.Memory, b.Memory),
			cmp.Compare(a.Name, b.Name))
	})
	for _, p := range t.profiles {
		var masks []Mask
		for _, s := range p.Starts {
			masks = append(masks, stretch(s, p.Size))
		}
		t.masks = append(t.masks, masks)
	}
	return t, nil
}

func (p Profile) check() error {
	e := p.Engines
	switch {
	case p.ID < 0 || p.Name == "":
		return fmt.Errorf("has no id or no name: %w", sharing.ErrInvalid)
	case p.Compute < 1 || p.MaxInstances < 1 || p.Size < 1 || p.Memory == 0:
		return fmt.Errorf("has %d compute slices, %s in %d placement units, at most %d times: %w", p.Compute, p.Memory,
			p.Size, p.MaxInstances, sharing.ErrInvalid)
	case min(e.Decoders, e.Encoders, e.JPEGs, e.OFAs) < 0:
		return fmt.Errorf("has a negative number of media engines: %w", sharing.ErrInvalid)
	case len(p.Starts) == 0 || p.Starts[0] < 0:
		return fmt.Errorf("has no place, or one before the axis: %w", sharing.ErrInvalid)
	case p.Size > MaxAxis || p.Starts[len(p.Starts)-1] > MaxAxis-p.Size:
		return fmt.Errorf("ends past %d placement units: %w", MaxAxis, sharing.ErrUnsupported)
	}
	for i := 1; i < len(p.Starts); i++ {
		if p.Starts[i] == p.Starts[i-1] {
			return fmt.Errorf("has the place %d twice: %w", p.Starts[i], sharing.ErrInvalid)
		}
	}
	return nil
}

// Axis is the number of placement units.
func (t *Table) Axis() int { return t.axis }

// Compute is the number of compute slices.
func (t *Table) Compute() int { return t.compute }

// Names are those of the profiles, from the smallest to the largest, as a list for people.
func (t *Table) Names() string {
	names := make([]string, len(t.profiles))
	for i, p := range t.profiles {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// Engines is how many media engines of each kind the GPU has for instances.
func (t *Table) Engines() Engines { return t.engines }

// Profiles returns the profiles, smallest first. The caller must not change their Starts.
func (t *Table) Profiles() []Profile { return slices.Clone(t.profiles) }

// Profile returns the profile of that id. The caller must not change its Starts.
func (t *Table) Profile(id int) (Profile, bool) {
	if i := t.index(id); i >= 0 {
		return t.profiles[i], true
	}
	return Profile{}, false
}

// Name returns the name of the profile of that id, or its number where the GPU has none such.
func (t *Table) Name(id int) string {
	if i := t.index(id); i >= 0 {
		return t.profiles[i].Name
	}
	return fmt.Sprintf("profile %d", id)
}

// Mask returns the stretch of a place; false for one that the GPU does not offer.
func (t *Table) Mask(p Place) (Mask, bool) {
	i := t.index(p.Profile)
	if i < 0 {
		return 0, false
	}
	for j, s := range t.profiles[i].Starts {
		if s == p.Start {
			return t.masks[i][j], true
		}
	}
	return 0, false
}

func (t *Table) index(id int) int {
	for i := range t.profiles {
		if t.profiles[i].ID == id {
			return i
		}
	}
	return -1
}
