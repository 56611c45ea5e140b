// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"slices"
	"sync/atomic"
)

// settleTries bounds how often Reclaim waits for a moment in which no process is between two counters.
const settleTries = 1000

// buried owns a slot while it is freed. No process has that name, so that an agent that dies here is followed by one
// that frees the slot.
const buried = 1<<64 - 1

// Grave is the slot of a process that has ended.
type Grave struct {
	Process Process

	slot         int
	owner, space uint64
}

// Dead finds the slots of processes that have ended: those that ended returns. It reads the slots before it calls
// ended, so a process that comes meanwhile is safe. Their memory still counts, because the driver frees it only with
// the last descriptor of a process's files: see Bury. The error sharing.ErrStale means that the container has truncated
// the file.
func (r *UsageFile) Dead(ended func(slots []Process) (map[Process]bool, error)) ([]Grave, error) {
	var owners, spaces [MaxProcesses]uint64
	if err := guard(func() {
		for i := range owners {
			owners[i] = atomic.LoadUint64(&r.usage.slot[i].owner)
			spaces[i] = atomic.LoadUint64(&r.usage.slot[i].space)
		}
	}); err != nil {
		return nil, err
	}
	var taken []Grave
	var slots []Process
	for i, who := range &owners {
		if who != 0 {
			p := named(who, spaces[i])
			taken, slots = append(taken, Grave{Process: p, slot: i, owner: who, space: spaces[i]}), append(slots, p)
		}
	}
	dead, err := ended(slots)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(taken, func(g Grave) bool { return !dead[g.Process] }), nil
}

// Bury frees slots that Dead has found and that are still theirs, and gives back their memory. Then it removes from the
// totals what no slot accounts for: a process leaves that if it dies between two counters. If processes are between
// counters at each try, that waits for the next call. It reports how many slots were freed.
//
// Only one goroutine of one process may call it at a time. sharing.ErrStale: the container has truncated the file.
func (r *UsageFile) Bury(graves []Grave) (freed int, err error) {
	err = guard(func() {
		for _, g := range graves {
			s := &r.usage.slot[g.slot]
			if atomic.LoadUint64(&s.space) == g.space && r.bury(s, g.owner) {
				freed++
			}
		}
		for range settleTries {
			if r.settle() {
				break
			}
		}
	})
	return freed, err
}

// bury frees a slot that is still who's. It is false where a process of the container has done so meanwhile: the
// slot may be another's by now.
func (r *UsageFile) bury(s *slot, who uint64) bool {
	if !atomic.CompareAndSwapUint64(&s.owner, who, buried) {
		return false
	}
	for d := range s.held {
		atomic.StoreUint64(&s.waiting[d], 0)
		subtract(&r.usage.total[d].bytes, atomic.SwapUint64(&s.held[d], 0))
	}
	atomic.StoreUint64(&s.ended, atomic.LoadUint64(&s.begun)) // it may have died between the two
	atomic.StoreUint64(&s.making, 0)
	atomic.StoreUint64(&s.space, 0)
	atomic.StoreUint64(&s.owner, 0)
	return true
}

// settle corrects the totals, and reports false where a process was at a counter meanwhile.
func (r *UsageFile) settle() bool {
	before, quiet := r.steps()
	if !quiet {
		return false
	}
	var sum, totals [MaxDevices]uint64
	for d := range totals {
		totals[d] = atomic.LoadUint64(&r.usage.total[d].bytes)
		for i := range r.usage.slot {
			sum[d] += atomic.LoadUint64(&r.usage.slot[i].held[d])
		}
	}
	if after, quiet := r.steps(); !quiet || after != before {
		return false
	}
	for d := range totals {
		if totals[d] > sum[d] {
			subtract(&r.usage.total[d].bytes, totals[d]-sum[d])
		}
	}
	return true
}

// steps counts the steps begun by all, and tells whether each of them has ended.
func (r *UsageFile) steps() (begun uint64, quiet bool) {
	quiet = true
	for i := range r.usage.slot {
		s := &r.usage.slot[i]
		ended := atomic.LoadUint64(&s.ended)
		b := atomic.LoadUint64(&s.begun)
		begun += b
		quiet = quiet && ended == b
	}
	return begun, quiet
}

// subtract takes n off and stops at 0: what tenants can write is never trusted to be sensible.
func subtract(word *uint64, n uint64) {
	for {
		now := atomic.LoadUint64(word)
		if atomic.CompareAndSwapUint64(word, now, now-min(n, now)) {
			return
		}
	}
}
