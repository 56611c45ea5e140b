// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Recovery is what has to be done to get a GPU well again: NVML_GPU_RECOVERY_ACTION_*.
type Recovery uint64

// The actions that are simulated.
const (
	RecoveryNone  Recovery = 0
	RecoveryReset Recovery = 1
)

// String returns the action as nvidia-smi shows it.
func (r Recovery) String() string {
	if r == RecoveryReset {
		return "Reset"
	}
	return "None"
}

const (
	// AutoUtil stands for utilisation as computed.
	AutoUtil = -1
	// MaxXID is the highest XID that can be raised.
	MaxXID = 999
	// MaxLatency is the longest delay of answers: practically a hang.
	MaxLatency = 24 * time.Hour
	// xidOffBus is the XID of a GPU that has fallen off the bus.
	xidOffBus = 79
)

// critical tells whether the GPU has to be reset after an XID. Those that an application causes (13, 31, 43,
// 45, 68, 109) and contained memory errors (94) leave it well.
func critical(xid uint64) bool {
	switch xid {
	case 46, 48, 62, 64, 74, 95, 119, 120, 140:
		return true
	}
	return false
}

// Faults are what is put on a GPU from outside and shown as it was put.
type Faults struct {
	Util    int           // percent, AutoUtil: computed
	Latency time.Duration // by which answers are late
}

// lateness is by how much answers of a GPU are late: it rises to most within ramp.
type lateness struct {
	most, ramp, since time.Duration
}

// Change is what to do to GPUs; nil and false leave things as they are.
type Change struct {
	// Lost takes the GPU off the bus, without an event, or brings it back.
	Lost *bool
	// Reboot is a restart of the node as this GPU sees it: no process uses it any more, MIG instances and limits are
	// gone. It is in MIG mode only if it is older than Hopper and the mode was set.
	Reboot bool
	// Reset ends what a critical XID has done and gives the GPU the pending MIG mode. It destroys the MIG instances. No
	// process may use the GPU.
	Reset bool
	// Passthrough says whether the node is a virtual machine that the GPU is passed through to: MIG mode of one before
	// Hopper then waits for a reset that comes from outside.
	Passthrough *bool
	// XID raises an event. XID 79 also takes the GPU off the bus; a critical one asks for a reset.
	XID *uint64
	// XIDInstance is the id of the GPU instance that the XID is on, which is all that it touches; nil for the whole
	// GPU.
	XIDInstance *uint64
	// Util overrides the utilisation reported, 0 to 100; AutoUtil ends that.
	Util *int
	// Latency delays each answer of the GPU. With Ramp, the delay rises from 0 to Latency within this time.
	Latency *time.Duration
	Ramp    time.Duration
	// CallLatency delays the answers to single calls; 0 ends it.
	CallLatency map[wire.Op]time.Duration
	// CallStatus answers single calls in the GPU's stead; wire.OK ends it.
	CallStatus map[wire.Op]wire.Status
	// ECCCorrected and ECCUncorrected set the counts of memory errors.
	ECCCorrected, ECCUncorrected *uint64
	// RemapPending and RemapFailed set what is to be said of memory rows; a reset ends what was pending.
	RemapPending, RemapFailed *bool
	// Slowed sets why the hardware slows the GPU down.
	Slowed *Slowed
	// LinksDown sets how many of the NVLinks are down, from the first on.
	LinksDown *int
	// TimeSlice sets how long one process's work runs while another's waits.
	TimeSlice *TimeSlice
	// Samples sets what is wrong with answers about processes.
	Samples *SampleNoise
	// Costs sets what the driver takes for itself.
	Costs CostChange
	// CountPeak restarts the count of the most memory used.
	CountPeak bool
	// Lists moves processes, by pid, to one of NVML's lists, until they leave the GPU.
	Lists map[int]wire.List
	// Faults raises an XID of each process, by pid, which ends its work and makes its contexts unusable: see faultOf.
	Faults map[int]uint64
}

// Apply changes all the GPUs, in the order: reboot, back on the bus, reset, XID, the rest. It is all or nothing; an
// error is a sharing.FieldError, or sharing.ErrConflict when a GPU that is held shall be reset.
func (m *Model) Apply(gpus []int, c Change, now time.Duration) error {
	if err := c.check(); err != nil {
		return err
	}
	for _, i := range gpus {
		if i < 0 || i >= len(m.gpus) {
			return sharing.Invalid("gpu", strconv.Itoa(i), fmt.Sprintf("write 0 to %d, or all", len(m.gpus)-1),
				"is not a GPU of this machine")
		}
		if c.Reset {
			if err := m.canReset(i, c.Lost != nil && !*c.Lost); err != nil {
				return err
			}
		}
	}
	for _, i := range gpus {
		for pid := range c.Lists {
			if !m.on(m.gpus[i], pid) {
				return notOn("list", pid, i)
			}
		}
		for pid := range c.Faults {
			if !m.on(m.gpus[i], pid) {
				return notOn("fault", pid, i)
			}
		}
	}
	for _, i := range gpus {
		m.apply(m.gpus[i], c, now)
	}
	return nil
}

func notOn(key string, pid, gpu int) error {
	return sharing.Invalid(key, strconv.Itoa(pid), "write the pid of one that is: see gpusim processes",
		"is not a process on gpu %d", gpu)
}

// check refuses values out of range and demands that exclude each other.
func (c Change) check() error {
	lost := c.Lost != nil && *c.Lost
	back := c.Lost != nil && !*c.Lost
	switch {
	case c.XID != nil && (*c.XID < 1 || *c.XID > MaxXID):
		return sharing.Invalid("xid", strconv.FormatUint(*c.XID, 10), fmt.Sprintf("write a number from 1 to %d",
			MaxXID), "is not an XID")
	case c.XIDInstance != nil && (c.XID == nil || *c.XID == xidOffBus):
		return sharing.Invalid("xid", "", "leave the instance out", "is not one of a MIG instance")
	case c.Util != nil && (*c.Util < AutoUtil || *c.Util > 100):
		return sharing.Invalid("util", strconv.Itoa(*c.Util), "write 0 to 100, or auto", "is not a percentage")
	case c.Latency != nil && (*c.Latency < 0 || *c.Latency > MaxLatency):
		return sharing.Invalid("latency", c.Latency.String(), "write a time from 0s to "+MaxLatency.String(),
			"is out of range")
	case c.Ramp < 0 || c.Ramp > MaxLatency || (c.Ramp > 0 && c.Latency == nil):
		return sharing.Invalid("ramp", c.Ramp.String(), "write a time from 0s to "+MaxLatency.String()+
			", and latency next to it", "is out of range, or stands alone")
	case c.badCallLatency():
		return sharing.Invalid("latency", "", "write times from 0s to "+MaxLatency.String(),
			"of a call is out of range")
	case c.Costs.bad():
		return sharing.Invalid("cost", "", "write times up to "+MaxCostTime.String()+" and sizes up to "+
			MaxCost.String(), "is out of range")
	case c.badFault():
		return sharing.Invalid("fault", "", "write 13, 31 or 43", "is no XID that the work of a process raises")
	case c.TimeSlice != nil && *c.TimeSlice > TimeSliceLong:
		return sharing.Invalid("time slice", strconv.FormatUint(uint64(*c.TimeSlice), 10), "write 0 to 3",
			"is not one of the driver's")
	case c.Reboot && (c.Reset || lost):
		return sharing.Invalid("reboot", "true", "give it without the other",
			"does not go together with reset=true or lost=true")
	case lost && c.Reset:
		return sharing.Invalid("reset", "true", "give one of the two", "does not go together with lost=true")
	case back && c.XID != nil && *c.XID == xidOffBus:
		return sharing.Invalid("xid", "79", "give one of the two",
			"takes the GPU off the bus and does not go together with lost=false")
	}
	return nil
}

func (c Change) badCallLatency() bool {
	for _, d := range c.CallLatency {
		if d < 0 || d > MaxLatency {
			return true
		}
	}
	return false
}

func (m *Model) canReset(index int, comesBack bool) error {
	g := m.gpus[index]
	if g.lost && !comesBack {
		return sharing.Invalid("reset", "true", fmt.Sprintf("write gpu=%d lost=false", index),
			"cannot be: gpu %d is lost", index)
	}
	holders, err := m.Processes(index)
	if err == nil && len(holders) > 0 {
		return fmt.Errorf("reset gpu %d: process %d holds it; end what runs there first: %w", index, holders[0].PID,
			sharing.ErrConflict)
	}
	return nil // no process uses a lost GPU
}

func (m *Model) apply(g *gpu, c Change, now time.Duration) {
	if c.Reboot {
		m.reboot(g, now)
	}
	if c.Lost != nil && !*c.Lost && g.lost {
		g.lost, g.recovery = false, RecoveryNone
		g.turn()
	}
	if c.Reset {
		g.recovery, g.remap.Pending = RecoveryNone, false
		g.turn()
	}
	if c.Passthrough != nil {
		g.passed = *c.Passthrough
	}
	if c.XID != nil {
		m.raiseXID(g, *c.XID, c.XIDInstance)
		if critical(*c.XID) && c.XIDInstance == nil {
			g.recovery = RecoveryReset
		}
	}
	if c.Util != nil {
		g.util = *c.Util
	}
	if c.Latency != nil {
		g.late = lateness{most: *c.Latency, ramp: c.Ramp, since: now}
	}
	c.Costs.apply(&g.costs)
	if c.CountPeak {
		g.peak = 0
		m.grown(g)
	}
	if c.TimeSlice != nil {
		g.pass(now)
		g.slice = *c.TimeSlice
	}
	m.applyCalls(g, c)
	for pid, xid := range c.Faults {
		m.fail(g, pid, xid, now)
	}
	if (c.Lost != nil && *c.Lost) || (c.XID != nil && *c.XID == xidOffBus) {
		m.lose(g, now)
	}
}

// lose takes a GPU off the bus: its memory is gone, and with it what anyone held. Clients stay open.
func (m *Model) lose(g *gpu, now time.Duration) {
	g.lost = true
	for _, c := range m.clients {
		if c.gpu == g {
			c.drop()
			g.stop(c.id, now)
		}
	}
}

// Recovery returns what has to be done to get the GPU well. Errors: Invalid, Lost.
func (m *Model) Recovery(index int) (Recovery, error) {
	g, err := m.gpu(index)
	if err != nil {
		return 0, err
	}
	return g.recovery, nil
}

// Latency returns by how much the answer to a call of start is late, 0 for a GPU that does not exist.
func (m *Model) Latency(index int, start time.Duration) time.Duration {
	if index < 0 || index >= len(m.gpus) {
		return 0
	}
	late := m.gpus[index].late
	risen := start - late.since
	if risen >= late.ramp {
		return late.most
	}
	return time.Duration(float64(late.most) * max(0, risen.Seconds()/late.ramp.Seconds()))
}

// Topology returns the nearest common ancestor of two GPUs (NVML_TOPOLOGY_*) and the NVLinks between them.
// Errors: Invalid, Lost (the first of the two).
func (m *Model) Topology(a, b int) (level, links uint64, err error) {
	g, err := m.gpu(a)
	if err != nil {
		return 0, 0, err
	}
	if b < 0 || b >= len(m.gpus) {
		return 0, 0, wire.Invalid
	}
	if a == b {
		return 0, 0, nil // NVML_TOPOLOGY_INTERNAL
	}
	other := m.gpus[b]
	level = 50 // NVML_TOPOLOGY_SYSTEM
	if g.hw.NUMA >= 0 && g.hw.NUMA == other.hw.NUMA {
		level = 40 // NVML_TOPOLOGY_NODE
	}
	if m.machine.NVSwitch {
		links = uint64(min(g.hw.Model.NVLinks, other.hw.Model.NVLinks)) // #nosec G115 -- not negative
	}
	return level, links, nil
}
