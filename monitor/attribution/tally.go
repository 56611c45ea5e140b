// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Place is one owner's usage of one GPU: a grant, unmanaged processes, or neither (unattributed).
type Place struct {
	Grant     string
	Unmanaged bool
	// GPU is the GPU, or the MIG instance of it.
	GPU sharing.GPURef
}

// Total is what has come together at a place since it was first seen.
type Total struct {
	// Peak is the most memory of any sample.
	Peak   Amount[sharing.Bytes]
	Energy Amount[Joules]
	// Active is how long its work ran on the GPU, and Watched the time over which that was known.
	Active, Watched time.Duration
	// Idle is how long nothing has run, to the last sample in which that was known.
	Idle time.Duration
}

// Accumulator adds samples up. The zero value is ready. It is not safe for concurrent use.
type Accumulator struct {
	totals map[Place]Total
}

// Add takes the samples of one cycle, the time that it covers, and the living grants. It forgets other owners, so a
// tally grows only with the node's grants.
func (t *Accumulator) Add(samples []Sample, passed time.Duration, living map[string]bool) {
	if t.totals == nil {
		t.totals = map[Place]Total{}
	}
	passed = max(passed, 0)
	for _, s := range samples {
		gpu := sharing.GPURef{UUID: s.GPU}
		for _, g := range s.Grants {
			t.add(Place{Grant: g.Grant, GPU: sharing.GPURef{UUID: s.GPU, Instance: g.Instance}}, g.Use, passed)
		}
		t.add(Place{GPU: gpu, Unmanaged: true}, s.Unmanaged, passed)
		t.add(Place{GPU: gpu}, s.Rest, passed)
	}
	for p := range t.totals {
		if p.Grant != "" && !living[p.Grant] {
			delete(t.totals, p)
		}
	}
}

func (t *Accumulator) add(p Place, u Use, passed time.Duration) {
	sum := t.totals[p]
	if u.Memory.Known() && (!sum.Peak.Known() || u.Memory.Value > sum.Peak.Value) {
		sum.Peak = u.Memory
	}
	if u.Energy.Known() {
		sum.Energy = Amount[Joules]{sum.Energy.Value + u.Energy.Value, u.Energy.How}
	}
	if u.SM.Known() {
		sum.Active += time.Duration(float64(min(u.SM.Value, 1)) * float64(passed))
		sum.Watched += passed
		sum.Idle += passed
		if u.SM.Value > 0 {
			sum.Idle = 0
		}
	}
	t.totals[p] = sum
}

// Of returns what has come together at a place; ok is false before its first sample.
func (t *Accumulator) Of(p Place) (total Total, ok bool) {
	total, ok = t.totals[p]
	return total, ok
}

// Len is the number of places.
func (t *Accumulator) Len() int { return len(t.totals) }
