// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/listing"
)

// fact is what the kernel reported of a process in one check, on any GPU.
type fact struct {
	dir   string
	start uint64
	err   error
}

// view is the kernel as a list of one GPU sees it in one check.
type view struct {
	opener
	gpu     sharing.GPURef
	grants  []Grant
	listed  []Use
	seen    map[int]fact // by pid
	unknown *error       // Observation.ReadErr
}

// Process implements listing.Kernel, as do the others.
func (v view) Process(pid int) listing.Fact {
	f, ok := v.seen[pid]
	if !ok {
		if f.dir, f.err = v.Cgroup(pid); f.err == nil {
			f.start, f.err = v.Start(pid)
		}
		v.seen[pid] = f
	}
	switch {
	case ended(f.err):
		return listing.Fact{State: listing.NoProcess}
	case f.err != nil:
		return listing.Fact{}
	}
	out := listing.Fact{State: listing.Alive, Start: f.start}
	if i := slices.IndexFunc(v.grants, func(g Grant) bool { return g.has(v.gpu, f.dir) }); i >= 0 {
		out.Owner = v.grants[i].Owner
	}
	return out
}

// Open tells whether the process has the GPU's device file open.
func (v view) Open(pid int) listing.Answer {
	open, err := v.open(pid)
	switch {
	case ended(err):
		return listing.No
	case err != nil:
		*v.unknown = cmp.Or(*v.unknown, err)
		return listing.NotKnown
	case open:
		return listing.Yes
	}
	return listing.No
}

// Retainers reads the processes of all grants that have a share of the GPU.
func (v view) Retainers() (grants []listing.Owner, known bool) {
	var listed []int
	for _, u := range v.listed {
		listed = append(listed, u.PID)
	}
	known = true
	for _, g := range v.grants {
		if !g.On(v.gpu) {
			continue
		}
		all, err := v.retainers(g, listed)
		if known = known && err == nil; len(all) > 0 {
			grants = append(grants, g.Owner)
		}
	}
	return grants, known
}
