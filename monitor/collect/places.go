// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import "time"

// placeKept is how long a living process is taken to be in the cgroup that it was found in. Programs are put into their
// cgroup before they touch a GPU; only root moves one later.
const placeKept = 30 * time.Second

// Processes finds out whose processes are. One goroutine calls it.
type Processes interface {
	// Cgroup is the absolute directory of a process's cgroup.
	Cgroup(pid int) (string, error)
	// Watch takes hold of a process, so that its end is told of: its pid may then be another's. Forget lets go of it.
	Watch(pid int) error
	Forget(pid int)
	// Ended are the watched processes that have ended since the last call; they are forgotten.
	Ended() []int
}

// place is where a process was found.
type place struct {
	dir   string
	until time.Time // when it is looked at again
	cycle uint64    // in which it was on a GPU last
}

// places remember the cgroups of the processes that are on GPUs, for as long as those live: the kernel is asked for new
// processes, and not for all in each cycle.
type places struct {
	processes Processes
	known     map[int]*place
	cycle     uint64
	due       time.Time // when one is looked at again
	gone      bool      // one that was known has ended
}

// look finds out who has ended. It comes after the GPUs' lists were read, so that a pid on them which has ended meanwhile is
// looked at anew.
func (p *places) look() {
	for _, pid := range p.processes.Ended() {
		delete(p.known, pid)
		p.gone = true
	}
}

// hold reports whether all that is known holds until now, so that processes that are on the GPUs as in the cycle before need no
// other one.
func (p *places) hold(now time.Time) bool { return !p.gone && now.Before(p.due) }

// begin begins a cycle.
func (p *places) begin() {
	p.cycle++
	p.gone = false
}

// of is the cgroup's directory of a process, empty when it cannot be told.
func (p *places) of(pid int, now time.Time) string {
	at := p.known[pid]
	if at != nil && (at.cycle == p.cycle || now.Before(at.until)) {
		at.cycle = p.cycle
		return at.dir
	}
	// First held, then looked at: what is found is then of this process or, if it ended in between, told of.
	held := p.processes.Watch(pid) == nil
	dir, err := p.processes.Cgroup(pid)
	if err != nil {
		dir = ""
	}
	until := now.Add(placeKept + time.Duration(pid%30)*time.Second) // not all at once
	if !held || err != nil {
		until = now
	}
	p.known[pid] = &place{dir, until, p.cycle}
	return dir
}

// end lets go of what is on no GPU any more.
func (p *places) end(now time.Time) {
	p.due = now.Add(placeKept)
	for pid, at := range p.known {
		if at.cycle != p.cycle {
			p.processes.Forget(pid)
			delete(p.known, pid)
			continue
		}
		if at.until.Before(p.due) {
			p.due = at.until
		}
	}
}
