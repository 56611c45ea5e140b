// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

// Snapshot is one cycle's result. It is never changed after it was published.
type Snapshot struct {
	// Seq counts cycles from 1; 0 means that there is none yet.
	Seq uint64
	// At is when the cycle began, and Took how long it lasted.
	At   time.Time
	Took time.Duration
	// Source names where the values come from, and Driver is its version.
	Source, Driver string
	// Agent is true while the agent tells of its grants. While it is false, Grants are those that it told of last.
	Agent  bool
	Grants map[string]Grant
	GPUs   []GPU
}

// GPU is one GPU in a snapshot.
type GPU struct {
	Info Info
	// Err is why the GPU did not answer; nothing else but Info is then there.
	Err error
	// Fields are what the GPU told.
	Fields map[Field]float64
	Device attribution.Device
	Use    attribution.Sample
	// Totals has each place of Use.
	Totals map[attribution.Place]attribution.Total
}

// Info is a GPU's identity.
type Info struct {
	UUID  sharing.GPUID
	Index int
	Minor int
	Model string
	PCI   string
}

// Reading is what a source tells of one GPU in one cycle.
type Reading struct {
	Info   Info
	Fields map[Field]float64
	// Device is without its processes' cgroups and without energy, which the collector adds. Its processes are never changed;
	// they may be the very slice of the reading before when they are as they were.
	Device attribution.Device
	Err    error
}

// Grant is what the agent tells of one grant.
type Grant struct {
	// ID is the agent's id, and Name what people call it: its name, or the id.
	ID, Name string
	// Namespace, Pod, PodUID and Container are empty for a grant that is no pod's.
	Namespace, Pod, PodUID, Container string
	Profile, Level                    string
	Lease                             attribution.Lease
	// Caps are by the order of Lease.Fragments.
	Caps []Cap
}

// Cap is what a grant may use of one GPU.
type Cap struct {
	// Memory is guaranteed, and Lent may be used beyond it until somebody claims it.
	Memory, Lent sharing.Bytes
	// Percent is the share of compute; 0 is a fair share.
	Percent sharing.Percent
	// Throttled is how long its launches have waited for that share, summed over threads, since the grant began; only when
	// Timed. The agent tells it with its grants, every some seconds.
	Throttled time.Duration
	Timed     bool
	Events    CapEvents
}

// CapEvents is what happened at a cap, as the agent told with its grants. What nobody counts is not known.
type CapEvents struct {
	// Refused is how many calls of the grant's programs were refused because the cap left no room; only when Counted, by
	// the programs.
	Refused uint64
	Counted bool
	// Violations is how many times the grant was found past its cap since the agent started, and Delay for how long at
	// most it had been so, the last time; only when Watched, by the agent.
	Violations uint64
	Delay      time.Duration
	Watched    bool
}

// CapOn returns the cap of a grant's fragment.
func (g Grant) CapOn(id sharing.GPUID, slot attribution.Slot) (Cap, bool) {
	for i, f := range g.Lease.Fragments {
		same := f.Slot == nil && slot == attribution.Slot{} || f.Slot != nil && *f.Slot == slot
		if f.GPU == id && same && i < len(g.Caps) {
			return g.Caps[i], true
		}
	}
	return Cap{}, false
}

// Whole returns the grant that has the whole GPU, if one has.
func (s *Snapshot) Whole(id sharing.GPUID) (Grant, bool) {
	for _, g := range s.Grants {
		for _, f := range g.Lease.Fragments {
			if f.GPU == id && f.Whole {
				return g, true
			}
		}
	}
	return Grant{}, false
}
