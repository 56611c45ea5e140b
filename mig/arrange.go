// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Arrange finds places for instances of these profiles (ids, a profile once for each instance) on an empty GPU.
// The places are in the order of the profiles; among the ways that there are it takes one that is the same each
// time. An error shows the arithmetic: it wraps sharing.ErrInvalid, because it will never fit.
func (t *Table) Arrange(profiles []int) ([]Place, error) {
	index := make([]int, len(profiles))
	for i, id := range profiles {
		if index[i] = t.index(id); index[i] < 0 {
			return nil, fmt.Errorf("the GPU has no MIG profile %d: %w", id, sharing.ErrInvalid)
		}
	}
	if places := t.arrange(index); places != nil {
		return places, nil
	}
	return nil, impossible(t, index)
}

// arrange is Arrange by index in the table; nil when there are no places for all.
func (t *Table) arrange(index []int) []Place {
	if len(index) > t.axis {
		return nil // and what is far too much needs no search
	}
	order := make([]int, len(index)) // positions, largest first: those have the fewest places
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return index[b] - index[a] })
	places := make([]Place, len(index))
	var place func(o Occupancy, n int) bool
	place = func(o Occupancy, n int) bool {
		if n == len(order) {
			return true
		}
		i := index[order[n]]
		if !t.room(o, i) {
			return false
		}
		p := &t.profiles[i]
		for j, start := range slices.Backward(p.Starts) {
			// Equal instances can change places, so only one order of them is tried.
			if n > 0 && index[order[n-1]] == i && start > places[order[n-1]].Start {
				continue
			}
			places[order[n]] = Place{p.ID, start}
			if next, ok := t.put(o, i, j); ok && place(next, n+1) {
				return true
			}
		}
		return false
	}
	if !place(Occupancy{}, 0) {
		return nil
	}
	return places
}

// Rearranged reports whether o's instances and one of profile id fit the GPU if all are placed again. If true and no
// place is free, the GPU is fragmented. If false, the GPU is full for that profile.
func (t *Table) Rearranged(o Occupancy, id int) bool {
	all := []int{t.index(id)}
	if all[0] < 0 {
		return false
	}
	for i := range t.profiles {
		for range o.counts[i] {
			all = append(all, i)
		}
	}
	return t.arrange(all) != nil
}

// UnfitReason returns the reason why no instance of the profile fits with o: an exhausted resource, or fragmentation.
// It is empty if one fits.
func (t *Table) UnfitReason(o Occupancy, id int) string {
	i := t.index(id)
	if i < 0 {
		return fmt.Sprintf("the GPU has no MIG profile %d", id)
	}
	p := t.profiles[i]
	for _, s := range p.Starts {
		if t.Fits(o, Place{id, s}) {
			return ""
		}
	}
	if !t.room(o, i) {
		return "full: " + lacks(t, o, p)
	}
	free := t.Free(o)
	kind := "full"
	if t.Rearranged(o, id) {
		kind = "fragmented"
	}
	return fmt.Sprintf("%s: %s takes %d of %d memory units from %s; %d are free (%s)", kind, p.Name, p.Size, t.axis,
		list(p.Starts), free.Count(), free)
}

// lacks says which of the sums stands in the way of one more p.
func lacks(t *Table, o Occupancy, p Profile) string {
	i := t.index(p.ID)
	if int(o.counts[i]) >= p.MaxInstances {
		return fmt.Sprintf("%d of at most %d %s are there", o.counts[i], p.MaxInstances, p.Name)
	}
	if o.Compute+p.Compute > t.compute {
		return fmt.Sprintf("%s takes %d of %d compute slices; %d are free", p.Name, p.Compute, t.compute,
			t.compute-o.Compute)
	}
	for _, e := range engineSums(o.Engines, p.Engines, t.engines) {
		if e.used+e.more > e.all {
			return fmt.Sprintf("%s takes %d of %d %s; %d are free", p.Name, e.more, e.all, e.name, e.all-e.used)
		}
	}
	return ""
}

type engineSum struct {
	name            string
	used, more, all int
}

func engineSums(used, more, all Engines) []engineSum {
	return []engineSum{
		{"decoders", used.Decoders, more.Decoders, all.Decoders},
		{"encoders", used.Encoders, more.Encoders, all.Encoders},
		{"JPEG engines", used.JPEGs, more.JPEGs, all.JPEGs},
		{"optical flow engines", used.OFAs, more.OFAs, all.OFAs},
	}
}

// sums says by which sum instances of the profiles (indexes) can never be on one GPU, or nothing.
func sums(t *Table, index []int) string {
	var counts [MaxProfiles]int
	var units, compute int
	var engines Engines
	var over []string
	for _, i := range index {
		p := &t.profiles[i]
		units += p.Size
		compute += p.Compute
		engines = engines.plus(p.Engines)
		counts[i]++
	}
	if units > t.axis {
		over = append(over, fmt.Sprintf("%d of %d memory units", units, t.axis))
	}
	if compute > t.compute {
		over = append(over, fmt.Sprintf("%d of %d compute slices", compute, t.compute))
	}
	for _, e := range engineSums(Engines{}, engines, t.engines) {
		if e.more > e.all {
			over = append(over, fmt.Sprintf("%d of %d %s", e.more, e.all, e.name))
		}
	}
	for i, p := range t.profiles {
		if counts[i] > p.MaxInstances {
			over = append(over, fmt.Sprintf("%d of at most %d %s", counts[i], p.MaxInstances, p.Name))
		}
	}
	return strings.Join(over, ", ")
}

func impossible(t *Table, index []int) error {
	var counts [MaxProfiles]int
	for _, i := range index {
		counts[i]++
	}
	var parts, starts []string
	for i, p := range t.profiles {
		if n := counts[i]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d x %s (%d of %d memory units, %d of %d compute slices each)", n,
				p.Name, p.Size, t.axis, p.Compute, t.compute))
			starts = append(starts, fmt.Sprintf("%s begins at %s", p.Name, list(p.Starts)))
		}
	}
	all := strings.Join(parts, " + ")
	if over := sums(t, index); over != "" {
		return fmt.Errorf("%s takes %s: %w", all, over, sharing.ErrInvalid)
	}
	return fmt.Errorf("%s fits by its sums, but there are no places for all: %s: %w", all, strings.Join(starts, "; "),
		sharing.ErrInvalid)
}
