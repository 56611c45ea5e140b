// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Mask is a set of placement units: bit n is unit n.
type Mask uint32

func stretch(start, size int) Mask { return (1<<size - 1) << start }

// Count is the number of units.
func (m Mask) Count() int { return bits.OnesCount32(uint32(m)) }

// Has reports whether all units of n are in m.
func (m Mask) Has(n Mask) bool { return n&^m == 0 }

// String lists the units as ranges: "0-3,6". The empty set is "none".
func (m Mask) String() string {
	var parts []string
	for m != 0 {
		from := bits.TrailingZeros32(uint32(m))
		n := bits.TrailingZeros32(^uint32(m >> from))
		if n == 1 {
			parts = append(parts, strconv.Itoa(from))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, from+n-1))
		}
		m &^= stretch(from, n)
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ",")
}

// Occupancy is what instances take of a GPU. The zero value is an empty GPU. It is a value: with == one finds
// out whether two leave the same room.
type Occupancy struct {
	// Taken are the placement units in use, at most the axis.
	Taken Mask
	// Compute is the number of compute slices in use, at most Table.Compute.
	Compute int
	Engines Engines
	counts  [MaxProfiles]uint8 // by index in the table
}

// Full are all units of the axis.
func (t *Table) Full() Mask { return stretch(0, t.axis) }

// Free are the units that o leaves.
func (t *Table) Free(o Occupancy) Mask { return t.Full() &^ o.Taken }

// Fits reports whether an instance at p can be added to o.
func (t *Table) Fits(o Occupancy, p Place) bool {
	_, ok := t.Try(o, p)
	return ok
}

// Add is o with one more instance at p. An error says what is missing and wraps sharing.ErrExhausted. For a place that
// the GPU does not offer, it wraps sharing.ErrInvalid; o is then returned as it was.
func (t *Table) Add(o Occupancy, p Place) (Occupancy, error) {
	if next, ok := t.Try(o, p); ok {
		return next, nil
	}
	m, ok := t.Mask(p)
	if !ok {
		return o, noPlace(t, p)
	}
	if o.Taken&m != 0 {
		return o, fmt.Errorf("%s at %d needs units %s, of which %s are taken: %w", t.Name(p.Profile), p.Start, m,
			o.Taken&m, sharing.ErrExhausted)
	}
	return o, fmt.Errorf("%s at %d: %s: %w", t.Name(p.Profile), p.Start, lacks(t, o, t.profiles[t.index(p.Profile)]),
		sharing.ErrExhausted)
}

// Remove is o without one instance at p, which must be among those that o was made of.
func (t *Table) Remove(o Occupancy, p Place) (Occupancy, error) {
	m, ok := t.Mask(p)
	if !ok {
		return o, noPlace(t, p)
	}
	i := t.index(p.Profile)
	if !o.Taken.Has(m) || o.counts[i] == 0 {
		return o, fmt.Errorf("%s at %d is not there: %w", t.Name(p.Profile), p.Start, sharing.ErrNotFound)
	}
	o.Taken &^= m
	o.Compute -= t.profiles[i].Compute
	o.Engines = o.Engines.minus(t.profiles[i].Engines)
	o.counts[i]--
	return o, nil
}

// Occupy is the Occupancy of all these instances together; the error is that of Add.
func (t *Table) Occupy(places []Place) (Occupancy, error) {
	var o Occupancy
	for _, p := range places {
		var err error
		if o, err = t.Add(o, p); err != nil {
			return Occupancy{}, err
		}
	}
	return o, nil
}

// Places lists where an instance can be added to o: by profile in the table's order, then by start.
func (t *Table) Places(o Occupancy) []Place {
	var list []Place
	for _, p := range t.profiles {
		for _, s := range p.Starts {
			if at := (Place{p.ID, s}); t.Fits(o, at) {
				list = append(list, at)
			}
		}
	}
	return list
}

// Try is Add for those who need no reason: false, and o as it was, where the instance cannot be added.
func (t *Table) Try(o Occupancy, p Place) (Occupancy, bool) {
	i := t.index(p.Profile)
	if i < 0 || !t.room(o, i) {
		return o, false
	}
	for j, s := range t.profiles[i].Starts {
		if s == p.Start {
			return t.put(o, i, j)
		}
	}
	return o, false
}

// put is add by index in the table, for a profile that fits together with its place.
func (t *Table) put(o Occupancy, i, j int) (Occupancy, bool) {
	m := t.masks[i][j]
	if o.Taken&m != 0 {
		return o, false
	}
	o.Taken |= m
	o.Compute += t.profiles[i].Compute
	o.Engines = o.Engines.plus(t.profiles[i].Engines)
	o.counts[i]++
	return o, true
}

// room reports whether the profile of that index fits by all that does not depend on its place.
func (t *Table) room(o Occupancy, i int) bool {
	p := &t.profiles[i]
	return int(o.counts[i]) < p.MaxInstances && o.Compute+p.Compute <= t.compute &&
		o.Engines.plus(p.Engines).within(t.engines)
}

func noPlace(t *Table, p Place) error {
	if q, ok := t.Profile(p.Profile); ok {
		return fmt.Errorf("%s begins at %s, not at %d: %w", q.Name, list(q.Starts), p.Start, sharing.ErrInvalid)
	}
	return fmt.Errorf("the GPU has no MIG profile %d: %w", p.Profile, sharing.ErrInvalid)
}

func list(n []int) string {
	parts := make([]string, len(n))
	for i, v := range n {
		parts[i] = strconv.Itoa(v)
	}
	return strings.Join(parts, ",")
}
