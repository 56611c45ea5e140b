// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package members finds the process of each slot in a grant's usage file. A process is named there by what it sees
// itself: its PID and start time in its own PID namespace and time namespace. The agent sees other numbers.
//
// The cost of a scan grows with the number of slots, not with the number of processes in the grant. Members reads all
// processes only for a slot that it does not know yet, and bounds how often it does so. A slot that waits for that
// counts as one of a process that runs, so that nothing is freed too early.
package members

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
)

const (
	// readsPerScan is how many processes a scan may read on average for slots that nothing else explains. A scan reads
	// all processes of a smaller grant.
	readsPerScan = 512
	// tick is the unit of start times.
	tick = 10 * time.Millisecond
)

// Kernel reads processes of the node. An error wraps sharing.ErrNotFound if there is no such process.
type Kernel interface {
	// Start is when a process started, in clock ticks since boot in the agent's time namespace.
	Start(pid int) (uint64, error)
	// InnerPID is the PID that a process knows itself by, and PIDSpace the number of its PID namespace.
	InnerPID(pid int) (int, error)
	PIDSpace(pid int) (uint64, error)
	// BootOffset is how far a process's boot clock is ahead of the agent's. sharing.ErrUnsupported: the kernel does
	// not tell.
	BootOffset(pid int) (time.Duration, error)
}

// Members are the processes that have slots in the usage file of one grant. Make them with New. One goroutine may
// use them at a time.
type Members struct {
	kernel Kernel
	// of is the process of each slot, which may have ended.
	of map[libkerf.Process]overhead.Process
	// inner caches the inner PIDs of processes, which never change.
	inner map[overhead.Process]int
	// noted are processes that use a GPU in this scan, by inner PID.
	noted map[int][]overhead.Process
	// debt is how many reads of earlier scans are not paid off yet.
	debt int
}

// New knows no process yet.
func New(k Kernel) *Members {
	return &Members{
		kernel: k, of: map[libkerf.Process]overhead.Process{}, inner: map[overhead.Process]int{},
		noted: map[int][]overhead.Process{},
	}
}

// Scan reads the processes of the grant again. The slots were read before the PIDs of its processes. It reports which
// slots are of processes that have ended or left the grant. It returns an error, and concludes nothing, if it cannot
// read a process.
func (m *Members) Scan(pids []int, slots []libkerf.Process) (ended map[libkerf.Process]bool, err error) {
	m.noted, m.debt = map[int][]overhead.Process{}, max(0, m.debt-readsPerScan)
	there := make(map[int]bool, len(pids))
	for _, pid := range pids {
		there[pid] = true
	}
	maps.DeleteFunc(m.inner, func(p overhead.Process, _ int) bool { return !there[p.PID] })
	of, unknown := map[libkerf.Process]overhead.Process{}, map[int][]libkerf.Process{}
	ended = map[libkerf.Process]bool{}
	for _, slot := range slots {
		p, known := m.of[slot]
		if !known {
			unknown[slot.PID] = append(unknown[slot.PID], slot)
			continue
		}
		of[slot] = p
		runs, err := m.runs(p, there)
		if err != nil {
			return nil, err
		}
		ended[slot] = !runs
	}
	m.of = of
	if len(unknown) == 0 || m.debt > 0 {
		return ended, nil
	}
	if err := m.search(pids, unknown); err != nil {
		return nil, err
	}
	for _, all := range unknown {
		for _, slot := range all {
			_, found := m.of[slot]
			ended[slot] = !found
		}
	}
	return ended, nil
}

func (m *Members) runs(p overhead.Process, there map[int]bool) (bool, error) {
	if !there[p.PID] {
		return false, nil
	}
	start, err := m.kernel.Start(p.PID)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return false, fmt.Errorf("read process %d of a slot: %w", p.PID, err)
	}
	return err == nil && start == p.Start, nil
}

// search reads all processes for slots of unknown processes, by inner PID.
func (m *Members) search(pids []int, unknown map[int][]libkerf.Process) error {
	m.debt = len(pids)
	known := m.inner
	m.inner = make(map[overhead.Process]int, len(pids))
	for _, pid := range pids {
		start, err := m.kernel.Start(pid)
		p := overhead.Process{PID: pid, Start: start}
		if inner, cached := known[p]; cached {
			m.inner[p] = inner
		}
		if err == nil {
			err = m.match(p, unknown)
		}
		if err != nil && !errors.Is(err, sharing.ErrNotFound) {
			return fmt.Errorf("search process %d for slots: %w", pid, err)
		}
	}
	return nil
}

// match finds the slots of a process.
func (m *Members) match(p overhead.Process, slots map[int][]libkerf.Process) error {
	inner, err := m.innerPID(p)
	if err != nil {
		return err
	}
	for _, slot := range slots[inner] {
		is, err := m.is(p, slot)
		if err != nil {
			return err
		}
		if is {
			m.of[slot] = p
		}
	}
	return nil
}

func (m *Members) innerPID(p overhead.Process) (int, error) {
	inner, cached := m.inner[p]
	if cached {
		return inner, nil
	}
	inner, err := m.kernel.InnerPID(p.PID)
	if err == nil {
		m.inner[p] = inner
	}
	return inner, err
}

// is reports whether a process with a slot's inner PID is the slot's.
func (m *Members) is(p overhead.Process, slot libkerf.Process) (bool, error) {
	if slot.Space != 0 { // else the program could not read it
		space, err := m.kernel.PIDSpace(p.PID)
		if err != nil || space != slot.Space {
			return false, err
		}
	}
	offset, err := m.kernel.BootOffset(p.PID)
	if errors.Is(err, sharing.ErrUnsupported) {
		return true, nil // the PID and its namespace have to do
	}
	return err == nil && startsAt(p.Start, offset, slot.Start), err
}

// startsAt reports whether a start time is what a boot clock with this offset gives for another. Both are rounded
// down to ticks, so that an offset of no whole ticks leaves two answers.
func startsAt(start uint64, offset time.Duration, seen uint64) bool {
	ticks, rest := int64(offset/tick), offset%tick
	if rest < 0 {
		ticks, rest = ticks-1, rest+tick
	}
	least := start + uint64(ticks) //nolint:gosec // wraps around for a negative offset, as it should
	return seen == least || rest != 0 && seen == least+1
}

// Add takes a process of the grant that uses a GPU. It may have a slot by now that the scan did not see yet. A later
// scan finds a process that cannot be read now.
func (m *Members) Add(p overhead.Process) {
	start, err := m.kernel.Start(p.PID)
	if err != nil || start != p.Start {
		return
	}
	if inner, err := m.innerPID(p); err == nil {
		m.noted[inner] = append(m.noted[inner], p)
	}
}

// Of is the process of a slot, which may have ended. ok is false if it is not known.
func (m *Members) Of(slot libkerf.Process) (p overhead.Process, ok bool) {
	if p, ok = m.of[slot]; ok {
		return p, true
	}
	for _, p := range m.noted[slot.PID] {
		if is, err := m.is(p, slot); err == nil && is {
			m.of[slot] = p
			return p, true
		}
	}
	return overhead.Process{}, false
}

// Forget drops a slot that is freed.
func (m *Members) Forget(slot libkerf.Process) { delete(m.of, slot) }

// Slots are the known slots of processes.
func (m *Members) Slots() map[overhead.Process]libkerf.Process {
	out := make(map[overhead.Process]libkerf.Process, len(m.of))
	for slot, p := range m.of {
		out[p] = slot
	}
	return out
}

// WithPID is the process with a PID that has a slot, or that uses a GPU in this scan. It may have ended.
func (m *Members) WithPID(pid int) (p overhead.Process, ok bool) {
	for _, p := range m.of {
		if p.PID == pid {
			return p, true
		}
	}
	for _, noted := range m.noted {
		for _, p := range noted {
			if p.PID == pid {
				return p, true
			}
		}
	}
	return overhead.Process{}, false
}
