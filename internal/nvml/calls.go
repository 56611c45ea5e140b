// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// Memory is a GPU's memory as this process sees it. If this process's own leaf cgroup has a hard limit, the driver
// shows the limit as the GPU's size.
type Memory struct {
	Total sharing.Bytes
	// Reserved is the driver's own part; 0 where an old driver counts it as used.
	Reserved sharing.Bytes
	Free     sharing.Bytes
	Used     sharing.Bytes
	// System is true for a GPU that uses the system's memory (GB10): NVML supports no memory query, and all amounts are
	// unknown, and 0.
	System bool
}

// Process is one process that holds a GPU.
type Process struct {
	PID int // in the host's pid namespace
	// Used is what the process holds on this GPU, over all its MIG instances; 0 when not Known.
	Used sharing.Bytes
	// Known is false when the driver does not tell Used.
	Known bool
	// MPS is true for a client of an MPS server; the server itself is a process like any other.
	MPS bool
}

// Recovery is what the driver wants done to a GPU (nvmlDeviceGpuRecoveryAction_t).
type Recovery uint32

// The recovery actions.
const (
	RecoveryNone Recovery = iota
	RecoveryReset
	RecoveryReboot
	RecoveryDrainP2P
	RecoveryDrainAndReset
	RecoveryIMEX
)

// String returns the action as a phrase.
func (r Recovery) String() string {
	names := [...]string{"nothing", "a GPU reset", "a reboot of the node", "draining peer-to-peer traffic",
		"draining and a GPU reset", "recovering the IMEX domain"}
	if uint64(r) < uint64(len(names)) {
		return names[r]
	}
	return fmt.Sprintf("recovery action %d", uint32(r))
}

// Readings reads what GPUs tell, and changes nothing.
type Readings struct {
	driver *driver
	links  linkCounts
}

// Memory returns how much memory the GPU has and how much of it is taken.
func (r *Readings) Memory(ctx context.Context, id sharing.GPUID) (Memory, error) {
	return onGPU(ctx, r.driver, "read memory", id, func(d device) (Memory, error) { return plausible(memoryOfGPU(d)) })
}

// memoryOfGPU reads a GPU's memory. NVML_ERROR_NOT_SUPPORTED is what a driver answers for a GPU without dedicated
// memory: that is a fact, and no failure. A missing function is none.
func memoryOfGPU(d device) (Memory, error) {
	m, err := d.memory()
	if e, ok := errors.AsType[*Error](err); ok && nvml.Return(e.Code) == nvml.ERROR_NOT_SUPPORTED { //nolint:gosec // it was one
		return Memory{System: true}, nil
	}
	return m, err
}

// plausible refuses what no GPU has.
func plausible(m Memory, err error) (Memory, error) {
	if err == nil && !m.System && (m.Total == 0 || m.Reserved > m.Total || m.Used > m.Total || m.Free > m.Total) {
		return Memory{}, fmt.Errorf("the driver reports %d bytes used, %d free and %d reserved of %d: %w",
			uint64(m.Used), uint64(m.Free), uint64(m.Reserved), uint64(m.Total), sharing.ErrUnavailable)
	}
	return m, err
}

// Processes returns the processes that hold the GPU, by pid, each once. A process can be in several of the
// driver's lists (compute, graphics, MPS) with the same memory, which is then counted once.
func (r *Readings) Processes(ctx context.Context, id sharing.GPUID) ([]Process, error) {
	return onGPU(ctx, r.driver, "list processes", id, func(d device) ([]Process, error) {
		lists, err := d.processes()
		if err != nil {
			return nil, err
		}
		return merge(lists), nil
	})
}

// ProcessesIn is Processes for one GPU instance: those that use it, and their usage of it. The list is the GPU's own. A
// process whose instance the driver does not report counts on each, with an unknown usage.
func (r *Readings) ProcessesIn(ctx context.Context, id sharing.GPUID, gi int) ([]Process, error) {
	return onGPU(ctx, r.driver, "list processes of a mig instance", id, func(d device) ([]Process, error) {
		lists, err := d.processes()
		if err != nil {
			return nil, err
		}
		return merge(inside(lists, gi)), nil
	})
}

// inside are the entries that are on a GPU instance, or may be.
func inside(lists [][]resident, gi int) [][]resident {
	out := make([][]resident, len(lists))
	for i, list := range lists {
		for _, r := range list {
			switch r.gi {
			case uint32(gi): //nolint:gosec // the driver's own number
			case noInstance:
				r.known = false
			default:
				continue
			}
			out[i] = append(out[i], r)
		}
	}
	return out
}

// merge makes one list of several. Within one MIG instance the lists show the same memory, so the largest
// number counts; over instances a process's numbers add up.
func merge(lists [][]resident) []Process {
	type place struct {
		pid    int
		gi, ci uint32
	}
	at := map[place]resident{}
	mps := map[int]bool{}
	for _, list := range lists {
		for _, r := range list {
			if r.pid <= 0 {
				continue // no process: nothing could be done with it
			}
			mps[r.pid] = mps[r.pid] || r.mps
			p := place{r.pid, r.gi, r.ci}
			if old, seen := at[p]; !seen || !old.known || (r.known && r.used > old.used) {
				at[p] = r
			}
		}
	}
	byPID := map[int]Process{}
	for p, r := range at {
		sum, seen := byPID[p.pid]
		used, err := sum.Used.Add(r.used)
		known := r.known && (!seen || sum.Known) && err == nil
		if !known {
			used = 0
		}
		byPID[p.pid] = Process{PID: p.pid, Used: used, Known: known, MPS: mps[p.pid]}
	}
	out := make([]Process, 0, len(byPID))
	for _, p := range byPID {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out
}

// Utilization returns the percent of the last sample period in which the GPU was busy, 0 to 100. It is
// sharing.ErrUnsupported on GPUs that do not tell (MIG mode).
func (r *Readings) Utilization(ctx context.Context, id sharing.GPUID) (int, error) {
	return onGPU(ctx, r.driver, "read utilization", id, func(d device) (int, error) {
		u, err := d.utilization()
		if err == nil && (u < 0 || u > 100) {
			return 0, fmt.Errorf("the driver reports %d percent: %w", u, sharing.ErrUnavailable)
		}
		return u, err
	})
}

// Check asks the GPU for something cheap that needs the hardware. It is nil, sharing.ErrLost,
// sharing.ErrUnavailable (hangs, driver gone) or another word.
func (r *Readings) Check(ctx context.Context, id sharing.GPUID) error {
	_, err := onGPU(ctx, r.driver, "check", id, memoryOfGPU)
	return err
}

// RecoveryAction returns what the driver wants done to the GPU; sharing.ErrUnsupported when the driver has
// no opinion at all (before r570).
func (r *Readings) RecoveryAction(ctx context.Context, id sharing.GPUID) (Recovery, error) {
	return onGPU(ctx, r.driver, "read recovery action", id, func(d device) (Recovery, error) { return d.recovery() })
}
