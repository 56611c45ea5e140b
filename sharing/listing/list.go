// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package listing decides to whom each entry of a driver's process list belongs.
//
// A driver names a process by its pid alone. It frees memory when the last descriptor of its files closes. So it lists
// an ended process for as long as a forked child has them open. Meanwhile the kernel may give the pid to another
// process. A List follows one GPU over all samples and remembers which process each entry was about.
//
// It promises:
//   - An entry belongs to a running process only under two conditions. The process had the GPU's device file open when
//     it was identified, and it did not start after the entry was first seen.
//   - What a process held when it ended stays charged to the grant that it was in, until the driver lists its pid no
//     more.
//   - A process with the pid of an ended one may use the GPU, too. If the two are not of one grant, the entry is
//     unclear for the grants of both.
//   - An entry whose process cannot be read is unclear. What is unclear never counts for a grant, and never as
//     unattributed.
//
// It is pure: the kernel's answers come through an interface, and the time is given. Not promised: to notice that a PID
// went to another process between two checks, if both use the GPU and the first was never seen.
package listing

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// List follows the list of one GPU. The zero value has seen nothing. It is not safe for concurrent use.
type List struct {
	records map[int]*record
}

// record is what is known of one entry since it was first seen.
type record struct {
	// since is the time of the first check with the entry, in clock ticks since boot.
	since uint64
	// process is whom the entry is about, and owner the grant that it was seen in last; both zero until it was
	// identified.
	process Process
	owner   Owner
	charged bool // owner is known
	guessed bool // owner was inferred
	// others are the grants of processes that had the pid later, and the GPU's device file open: some of it may be
	// theirs.
	others []Owner
	// ended says that whom the entry is about has ended: who has the pid now, if anybody, is another one.
	ended bool
	// closed says that process was found without the GPU's device file. Then others keep what it holds.
	closed bool
}

// Step takes the entries that the driver listed, each PID once, and the time of its answer in clock ticks since boot.
// It also takes what the kernel reports afterwards. Calls are in the order of their times. It returns a line for each
// entry, in the order of entries.
func (l *List) Step(now uint64, entries []Entry, k Kernel) []Line {
	records := make(map[int]*record, len(entries))
	lines := make([]Line, 0, len(entries))
	for _, e := range entries {
		r := l.records[e.PID]
		if r == nil {
			r = &record{since: now}
		}
		records[e.PID] = r
		line := r.judge(e.PID, k)
		line.Entry = e
		lines = append(lines, line)
	}
	l.records = records
	return lines
}

// Clone is a List that goes its own way from here.
func (l *List) Clone() *List {
	out := &List{records: make(map[int]*record, len(l.records))}
	for pid, r := range l.records {
		c := *r
		c.others = slices.Clone(r.others)
		out.records[pid] = &c
	}
	return out
}

// Closed records that a process, which a line named as running, does not have the GPU's device file. Others keep its
// memory. Each check asks about the file from now on.
func (l *List) Closed(p Process) {
	if r := l.records[p.PID]; r != nil && r.process == p {
		r.closed = true
	}
}

func (r *record) judge(pid int, k Kernel) Line {
	f := k.Process(pid)
	switch {
	case f.State == NoProcess:
		r.ended = true
		return r.endedLine(k)
	case f.State != Alive:
		return Line{Kind: Unclear}
	case r.ended:
	case r.process.PID == 0:
		return r.identify(pid, f, k)
	case r.process.Start == f.Start:
		return r.runs(pid, f, k)
	}
	r.ended = true
	return r.successor(pid, f, k)
}

// identify finds out whether the process that has the pid is whom the entry is about.
func (r *record) identify(pid int, f Fact, k Kernel) Line {
	open := k.Open(pid)
	switch {
	case open == NotKnown:
		return Line{Kind: Unclear}
	case open == No || f.Start > r.since:
		r.ended = true
		return r.successor(pid, f, k)
	}
	r.process = Process{pid, f.Start}
	r.owner, r.charged = f.Owner, true
	return Line{Kind: Running, Process: r.process, Owner: f.Owner}
}

// runs is about a process that was identified and still runs.
func (r *record) runs(pid int, f Fact, k Kernel) Line {
	r.owner = f.Owner
	if !r.closed {
		return Line{Kind: Running, Process: r.process, Owner: f.Owner}
	}
	switch k.Open(pid) {
	case Yes:
		r.closed = false
		return Line{Kind: Running, Process: r.process, Owner: f.Owner}
	case No:
		return r.endedLine(k)
	case NotKnown:
	}
	return Line{Kind: Unclear, Suspects: []Owner{f.Owner}}
}

// successor is about a process that has the pid of one that has ended.
func (r *record) successor(pid int, f Fact, k Kernel) Line {
	switch k.Open(pid) {
	case No:
		return r.endedLine(k)
	case Yes:
		if r.charged && r.owner == f.Owner && len(r.others) == 0 { // whichever of the two has it, it is the grant's
			return r.endedLine(k)
		}
		if !slices.Contains(r.others, f.Owner) {
			r.others = append(r.others, f.Owner)
		}
		return Line{Kind: Unclear, Suspects: r.suspects()}
	case NotKnown:
	}
	return Line{Kind: Unclear}
}

// suspects are all that the entry may belong to, once there are several.
func (r *record) suspects() []Owner {
	out := slices.Clone(r.others)
	if r.charged && !slices.Contains(out, r.owner) {
		out = append(out, r.owner)
	}
	return out
}

// endedLine is about a process that has ended. If it was in no grant, its memory is unattributed.
func (r *record) endedLine(k Kernel) Line {
	if r.charged && len(r.others) == 0 {
		return r.charge(r.owner, r.guessed)
	}
	retainers, known := k.Retainers()
	one := known && len(retainers) == 1
	if len(r.others) > 0 {
		if all := r.suspects(); !one || !slices.Contains(all, retainers[0]) {
			return Line{Kind: Unclear, Suspects: all}
		}
		return r.charge(retainers[0], true)
	}
	if !one {
		return r.charge("", true)
	}
	r.owner, r.charged, r.guessed = retainers[0], true, true
	return r.charge(r.owner, true)
}

func (r *record) charge(o Owner, inferred bool) Line {
	if o == "" {
		return Line{Kind: Unattributed}
	}
	return Line{Kind: Ended, Owner: o, Inferred: inferred}
}

// May reports whether an entry is unclear and may be one of the grants'.
func (l Line) May(grants ...Owner) bool {
	if l.Kind != Unclear {
		return false
	}
	return len(l.Suspects) == 0 || slices.ContainsFunc(grants,
		func(o Owner) bool { return slices.Contains(l.Suspects, o) })
}

// Charge is what one grant holds of a GPU.
type Charge struct {
	// Bytes is all that is charged to the grant. It and the parts below mean nothing unless Known.
	Bytes sharing.Bytes
	// Ended is the part whose processes have ended, and Inferred the part of that which is charged by inference alone.
	Ended, Inferred sharing.Bytes
	Known           bool
}

// ChargeOf adds up what grants hold together. It is not known if an entry of theirs is without an amount, or if one
// that is unclear may be theirs.
func ChargeOf(lines []Line, grants ...Owner) Charge {
	c := Charge{Known: true}
	for _, l := range lines {
		mine, maybe := (l.Kind == Running || l.Kind == Ended) && slices.Contains(grants, l.Owner), l.May(grants...)
		if !mine && !maybe {
			continue
		}
		sum, err := c.Bytes.Add(l.Bytes)
		if maybe || !l.Known || err != nil {
			return Charge{}
		}
		c.Bytes = sum
		if l.Kind == Ended {
			c.Ended += l.Bytes // a part of the sum
		}
		if l.Inferred {
			c.Inferred += l.Bytes // as above
		}
	}
	return c
}

// SumUnattributed adds up the unattributed memory, as far as its amounts are known.
func SumUnattributed(lines []Line) sharing.Bytes {
	var sum sharing.Bytes
	for _, l := range lines {
		if more, err := sum.Add(l.Bytes); l.Kind == Unattributed && l.Known && err == nil {
			sum = more
		}
	}
	return sum
}
