// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"slices"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// stays says which graves stay: all, where others may have the files of the dead and the driver does not tell, and else
// those with managed memory of processes that the driver lists. It does not list managed memory, so that nothing else
// tells of that.
func (k *kept) stays(l *lists.Lists, looks []lists.Look, open *libkerf.Region) func(libkerf.Grave) bool {
	if len(k.graves) == 0 {
		return func(libkerf.Grave) bool { return false }
	}
	if len(k.look.Listed) < len(k.GPUs) && k.mayKeep(l, looks) {
		return func(libkerf.Grave) bool { return true }
	}
	managed := map[libkerf.Process]bool{}
	for _, c := range open.Counts() {
		for _, bytes := range c.Managed {
			managed[c.Process] = managed[c.Process] || bytes > 0
		}
	}
	listed, unknown := map[overhead.Process]bool{}, false
	for _, pid := range k.endedPIDs(looks) {
		p, known := k.whose(pid)
		listed[p], unknown = known, unknown || !known
	}
	return func(g libkerf.Grave) bool {
		p, known := k.region.members.Of(g.Process)
		return managed[g.Process] && (known && listed[p] || !known && unknown)
	}
}

// endedPIDs are the pids of the lease's processes that have ended and are listed.
func (k *kept) endedPIDs(looks []lists.Look) (out []int) {
	for _, look := range looks {
		for _, line := range look.Lines {
			if slices.Contains(k.look.Listed, look.GPU) && line.Kind == listing.Ended &&
				slices.Contains(k.names(), line.Owner) {
				out = append(out, line.PID)
			}
		}
	}
	return out
}

// tells reports whether a look tells all that the lease holds of its GPU.
func (k *kept) tells(look lists.Look) bool {
	return look.Err == nil && !slices.ContainsFunc(look.Lines,
		func(line lists.Line) bool { return line.May(k.names()...) })
}

func (k *kept) names() (out []listing.Owner) {
	for _, o := range k.Owners {
		out = append(out, o.Owner)
	}
	return out
}

// take takes the lease's entries of a look.
func (k *kept) take(look lists.Look) {
	for _, line := range look.Lines {
		if !slices.Contains(k.names(), line.Owner) {
			continue
		}
		p := overhead.Process(line.Process)
		if line.Kind == listing.Ended {
			var counts bool
			if p, counts = k.whose(line.PID); !counts {
				k.look.Ended[look.GPU] += line.Bytes
				continue
			}
		} else {
			k.region.members.Note(p)
		}
		k.look.Uses = append(k.look.Uses, overhead.Use{Process: p, GPU: look.GPU, Bytes: line.Bytes, Known: line.Known})
	}
}

// whose is the process with that number whose counter stands for what it holds, although the driver lists one that has
// ended: its slot is kept, or it lives and has closed its files.
func (k *kept) whose(pid int) (overhead.Process, bool) {
	for _, g := range k.graves {
		if p, kept := k.region.members.Of(g.Process); kept && p.PID == pid {
			return p, true
		}
	}
	if p, known := k.region.members.WithPID(pid); known {
		return p, true
	}
	_, there := slices.BinarySearch(k.pids, pid)
	start, err := process.StartOf(pid)
	return overhead.Process{PID: pid, Start: start}, there && err == nil
}

// mayKeep reports whether a process of the lease that counts nothing may have the files of one that has ended, on a GPU
// that the driver does not tell of. What cannot be read may.
func (k *kept) mayKeep(l *lists.Lists, looks []lists.Look) bool {
	for _, look := range looks {
		if !slices.Contains(k.GPUs, look.GPU) || slices.Contains(k.look.Listed, look.GPU) {
			continue
		}
		if look.Err == nil {
			return true // it is unclear
		}
		for _, o := range k.Owners {
			all, err := l.Retainers(look, o)
			counts := func(p listing.Process) bool { _, ok := k.look.Before[overhead.Process(p)]; return ok }
			if err != nil || slices.ContainsFunc(all, func(p listing.Process) bool { return !counts(p) }) {
				return true
			}
		}
	}
	return false
}
