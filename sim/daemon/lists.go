// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// processes answers with one of NVML's lists, as the driver does: in the caller's pid namespace, without the processes
// that are not in it, and with no more than the driver lists.
func (c *device) processes(offset uint64, list wire.List) (wire.Response, error) {
	uses, err := c.d.model.Listed(c.minor, list)
	all := model.Sum(uses, func(u model.Use) int { return c.d.holders[u.Client].pidFor(c.peer) })
	return page(err, all[:min(len(all), wire.MaxProcesses)], offset, func(p model.Process) []uint64 {
		return []uint64{uint64(p.PID), uint64(p.Bytes), p.GI, p.CI} // #nosec G115 -- a process id
	})
}

// processUtil answers with what processes used in the samples after since, in microseconds of the clock that NVML's
// time stamps are of. The driver leaves the host's pid to a process that the caller cannot see, although it may be
// another process's number in the caller's pid namespace.
func (c *device) processUtil(since uint64) (wire.Response, error) {
	at := now()
	begin := time.Now().Add(-at).UnixMicro()                                           // when the model's clock was 0
	from := time.Duration(int64(min(since, math.MaxInt64/2))-begin) * time.Microsecond // #nosec G115 -- bounded
	all, err := c.d.model.ProcessUtilization(c.minor, max(-1, from), at)
	return page(err, all, 0, func(p model.ProcessUse) []uint64 {
		pid := cmp.Or(c.d.peerOf(p.PID).pidFor(c.peer), p.PID)
		// #nosec G115 -- none is negative
		return []uint64{uint64(pid), uint64(begin + p.At.Microseconds()), uint64(p.GPU), uint64(p.Memory)}
	})
}

// peerOf is a holder of a GPU by its number, one that lives before one that has ended; nil where there is none. d.mu is
// held.
func (d *Daemon) peerOf(pid int) *peer {
	var found *peer
	for _, p := range d.holders {
		if p.pid == pid && (found == nil || !p.dead()) {
			found = p
		}
	}
	return found
}

// allProcesses lists who holds what on GPUs that are not lost: each process for itself, whatever its number. d.mu is
// held.
func (d *Daemon) allProcesses() []control.Process {
	all := []control.Process{}
	for i := range d.uuids {
		st, _ := d.model.Status(i) // every GPU of the machine is in the model
		uses, err := d.model.Uses(i)
		if err != nil {
			continue // lost: no process uses it
		}
		byStart := map[uint64][]model.Use{}
		for _, u := range uses {
			byStart[d.holders[u.Client].start] = append(byStart[d.holders[u.Client].start], u)
		}
		for start, uses := range byStart {
			for _, p := range model.Sum(uses, func(u model.Use) int { return u.PID }) {
				peer := d.holders[uses[slices.IndexFunc(uses, func(u model.Use) bool { return u.PID == p.PID })].Client]
				out := control.Process{
					PID: p.PID, Start: start, Ended: peer.dead(), Cgroup: peer.cgroup(d.groups), GPU: d.uuids[i],
					GPUIndex: i, Bytes: p.Bytes,
				}
				if st.MIG {
					out.GPUInstance = &p.GI
				}
				all = append(all, out)
			}
		}
	}
	slices.SortFunc(all, func(a, b control.Process) int {
		return cmp.Or(cmp.Compare(a.GPUIndex, b.GPUIndex), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start))
	})
	return all
}
