// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package overhead decides how much the processes of an attachment use beyond what they count themselves, and which of
// them do not count at all. It compares their counters with what the driver reports of each process.
//
// The overhead of a process is what the driver reports of it less what it counts, managed memory aside. Memory is
// reserved in the counter before the driver allocates it, and returned after the driver has freed it. So if a process
// did not change its counter between two readings, the driver's amount in between is at most count and overhead
// together. Only such readings are used. A larger overhead counts at once. If it is smaller, an allocation may just be
// in progress, so the larger of two readings in a row counts.
//
// It promises that the overhead of processes is never overstated if it does not shrink, so that no allocation that fits
// is rejected. It is exact two checks after all was quiet. While a process changes its counters at every check, the
// last reading stays. The memory of a process without a counter is all overhead, and so is that of an ended process
// without a counter.
//
// What a process counts for a new context stands for overhead. Once the driver reports the process, it is overhead
// instead, so that the real size of the context counts. If the driver does not list the process at two such samples,
// the context has gone, and its count goes too. The package is pure: no I/O, no clock.
package overhead

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Process is a process of the attachment, in the node's pid namespace.
type Process struct {
	PID int
	// Start is in clock ticks since boot.
	Start uint64
}

// Count is what one process counted at one moment.
type Count struct {
	// Steps is how many times it was at a counter, and Quiet tells that it was at none just then.
	Steps uint64
	Quiet bool
	Used  map[sharing.GPURef]sharing.Bytes
	// Managed is the part of Used that is managed memory: the driver lists no process with it.
	Managed map[sharing.GPURef]sharing.Bytes
	// Waiting is the part of Used that is for contexts which the process has made.
	Waiting map[sharing.GPURef]sharing.Bytes
}

// Use is what the driver tells of one process on one GPU; Bytes counts only where it is Known.
type Use struct {
	Process
	GPU   sharing.GPURef
	Bytes sharing.Bytes
	Known bool
}

// Sample is one check of a grant. The counts are those of live processes, and of ended ones whose counters stay because
// others keep their memory.
type Sample struct {
	// Before and After were read before and after the driver was asked.
	Before, After map[Process]Count
	// Listed are the grant's GPUs whose processes the driver listed, and Uses those of the grant.
	Listed []sharing.GPURef
	Uses   []Use
	// Ended is what processes hold that have ended and are not in the counts, by GPU: others have their files open.
	Ended map[sharing.GPURef]sharing.Bytes
	// Bound is the most that one context takes, for each GPU where the size is not known.
	Bound map[sharing.GPURef]sharing.Bytes
}

// Result is the result of a check.
type Result struct {
	// Overhead is what the attachment holds beyond what it counts, for each GPU of which anything is known.
	Overhead map[sharing.GPURef]sharing.Bytes
	// Least is the smallest overhead of a process that created one context since the last check, for each GPU with a
	// bound. It is valid for this grant only: its processes can change it.
	Least map[sharing.GPURef]sharing.Bytes
	// Settled is what processes count for contexts and need to no more: Overhead has what there is of it.
	Settled []Settled
	// Uncounted are the processes that use a GPU and have no counter, in this sample and the one before, by pid.
	Uncounted []Process
}

// Settled is what a process counted of a GPU for its contexts.
type Settled struct {
	Process
	GPU   sharing.GPURef
	Bytes sharing.Bytes
}

type place struct {
	process Process
	gpu     sharing.GPURef
}

// reading is the accepted usage of one process on one GPU. A smaller reading that waits for another is lower. If the
// driver did not list the process, which had counted for a context, absent is true.
type reading struct {
	overhead, lower sharing.Bytes
	waits, absent   bool
}

// Account is the result up to the last check. The zero value is that of a grant without a check.
type Account struct {
	believed map[place]reading
	silent   map[Process]bool
	ended    map[sharing.GPURef]sharing.Bytes
}

// Step applies a check.
func (a *Account) Step(l Sample) Result {
	uses := map[place]Use{}
	for _, u := range l.Uses {
		uses[place{u.Process, u.GPU}] = u
	}
	believed := map[place]reading{}
	out := Result{Overhead: map[sharing.GPURef]sharing.Bytes{}, Least: map[sharing.GPURef]sharing.Bytes{}}
	for p, after := range l.After {
		before, both := l.Before[p]
		still := both && before.Quiet && after.Quiet && before.Steps == after.Steps
		for gpu := range after.Used {
			at := place{p, gpu}
			r, had := a.believed[at]
			u, listed := uses[at]
			if still && slices.Contains(l.Listed, gpu) && (u.Known || !listed) {
				waiting, absent := after.Waiting[gpu], r.absent
				seen := u.Bytes.SubFloor(after.Used[gpu].SubFloor(waiting).SubFloor(after.Managed[gpu]))
				r, had = r.next(seen), true
				r.absent = !listed && waiting > 0
				if waiting > 0 && (listed || absent) {
					out.Settled = append(out.Settled, Settled{p, gpu, waiting})
				}
				if waiting > 0 && waiting <= l.Bound[gpu] && seen > 0 &&
					(out.Least[gpu] == 0 || seen < out.Least[gpu]) {
					out.Least[gpu] = seen
				}
			}
			if had {
				believed[at] = r
			}
		}
	}
	silent := map[Process]bool{}
	for at, u := range uses {
		_, was := l.Before[at.process]
		_, is := l.After[at.process]
		if was || is {
			continue
		}
		silent[at.process] = true
		out.add(at.gpu, u.Bytes)
	}
	for p := range silent {
		if a.silent[p] {
			out.Uncounted = append(out.Uncounted, p)
		}
	}
	slices.SortFunc(out.Settled, func(s, t Settled) int {
		return cmp.Or(cmp.Compare(s.PID, t.PID), s.GPU.Compare(t.GPU))
	})
	slices.SortFunc(out.Uncounted, func(p, q Process) int { return cmp.Compare(p.PID, q.PID) })
	for at, r := range believed {
		out.add(at.gpu, r.overhead)
	}
	ended := maps.Clone(a.ended) // without an answer for a GPU, the last value stays
	for _, gpu := range l.Listed {
		delete(ended, gpu)
	}
	for gpu, bytes := range l.Ended {
		if ended == nil {
			ended = map[sharing.GPURef]sharing.Bytes{}
		}
		ended[gpu] = bytes
	}
	for gpu, bytes := range ended {
		out.add(gpu, bytes)
	}
	a.believed, a.silent, a.ended = believed, silent, ended
	return out
}

func (r reading) next(seen sharing.Bytes) reading {
	switch {
	case seen >= r.overhead:
		return reading{overhead: seen}
	case r.waits:
		return reading{overhead: max(seen, r.lower), lower: seen, waits: true}
	}
	return reading{overhead: r.overhead, lower: seen, waits: true}
}

func (r Result) add(gpu sharing.GPURef, more sharing.Bytes) {
	sum, err := r.Overhead[gpu].Add(more)
	if err != nil {
		sum = math.MaxUint64
	}
	r.Overhead[gpu] = sum
}
