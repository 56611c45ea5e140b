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

// stays reports which graves stay. If the driver reports nothing and others may have the files of the dead, all stay.
// Otherwise those with managed memory stay while the driver lists their processes. Its lists omit managed memory, so
// nothing else reports it.
func (k *kept) stays(l *lists.Lists, looks []lists.Observation, open *libkerf.UsageFile) func(libkerf.Grave) bool {
	if len(k.graves) == 0 {
		return func(libkerf.Grave) bool { return false }
	}
	if len(k.sample.Listed) < len(k.GPUs) && k.mayKeep(l, looks) {
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

// endedPIDs are the pids of the attachment's processes that have ended and are listed.
func (k *kept) endedPIDs(looks []lists.Observation) (out []int) {
	for _, look := range looks {
		for _, line := range look.Lines {
			if slices.Contains(k.sample.Listed, look.GPU) && line.Kind == listing.Ended &&
				slices.Contains(k.names(), line.Owner) {
				out = append(out, line.PID)
			}
		}
	}
	return out
}

// tells reports whether a listing has everything that the attachment uses on its GPU.
func (k *kept) tells(look lists.Observation) bool {
	return look.Err == nil && !slices.ContainsFunc(look.Lines,
		func(line lists.Line) bool { return line.May(k.names()...) })
}

func (k *kept) names() (out []listing.Owner) {
	for _, o := range k.Owners {
		out = append(out, o.Owner)
	}
	return out
}

// take records the attachment's entries of a listing.
func (k *kept) take(look lists.Observation) {
	for _, line := range look.Lines {
		if !slices.Contains(k.names(), line.Owner) {
			continue
		}
		p := overhead.Process(line.Process)
		if line.Kind == listing.Ended {
			var counts bool
			if p, counts = k.whose(line.PID); !counts {
				k.sample.Ended[look.GPU] += line.Bytes
				continue
			}
		} else {
			k.region.members.Add(p)
		}
		k.sample.Uses = append(k.sample.Uses,
			overhead.Use{Process: p, GPU: look.GPU, Bytes: line.Bytes, Known: line.Known})
	}
}

// whose is the process with that number if its counter stands for its memory although the driver lists it as ended. Its
// slot is kept, or it lives and has closed its files.
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

// mayKeep reports whether a process of the attachment that counts nothing may have the files of an ended one. It
// considers GPUs without a driver's report. What cannot be read may.
func (k *kept) mayKeep(l *lists.Lists, looks []lists.Observation) bool {
	for _, look := range looks {
		if !slices.Contains(k.GPUs, look.GPU) || slices.Contains(k.sample.Listed, look.GPU) {
			continue
		}
		if look.Err == nil {
			return true // it is unclear
		}
		for _, o := range k.Owners {
			all, err := l.Retainers(look, o)
			counts := func(p listing.Process) bool { _, ok := k.sample.Before[overhead.Process(p)]; return ok }
			if err != nil || slices.ContainsFunc(all, func(p listing.Process) bool { return !counts(p) }) {
				return true
			}
		}
	}
	return false
}
