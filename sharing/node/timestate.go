// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Compute says whether something holds a grant to its share of GPU time.
type Compute struct {
	// By is what does: ComputeExclusive, a backend's name, or ComputeNone.
	By string
	// Why says for ComputeNone why nothing does, and else by what rule it is done.
	Why string
	// Priority is its class: idle time is lent to the highest first.
	Priority int32
	// Times has an entry for each fragment of a lease whose programs count their time; else it is nil.
	Times []Time
}

// What Compute.By is where it is no backend.
const (
	// ComputeExclusive: the grant has whole GPUs.
	ComputeExclusive = "exclusive"
	// ComputeNone: nothing.
	ComputeNone = "none"
)

// pastAfter is for how many seconds in a row the driver has to see more than a lease's share before it counts as not
// held: a program's first launches are charged when it is known what they take.
const pastAfter = 5

// Time is what is known of a lease's use of one GPU's time. Its programs can write all but Percent.
type Time struct {
	// Percent is the part of the last sharing.TimeRing that it used, as far as the driver's samples tell; -1 where they are too few
	// or do not tell of it.
	Percent int
	// Charged is what its programs were charged in all for so many Launches, and worth as far as the driver's samples tell.
	Charged  time.Duration
	Launches uint64
	// Past is how many of these ran on without a budget: no agent refilled it for two seconds, or a copy waited for one.
	Past uint64
	// Waited is how long its launches waited for a budget, summed over threads.
	Waited time.Duration
}

// computeOf needs the lock.
func (r *Runtime) computeOf(g ledger.Grant, h *holding) Compute {
	_, percent := g.Claim.Placement.Total()
	none := func(why string) Compute { return Compute{By: ComputeNone, Why: why} }
	switch {
	case g.Claim.Request.Kind == sharing.KindWhole:
		return Compute{By: ComputeExclusive}
	case g.Lease == nil || h == nil:
		return none("no program uses the grant yet")
	case h.backend == config.BackendMPS && percent > 0:
		return Compute{By: h.backend.String(), Why: "MPS limits the threads that each of its clients uses at once, and not their time"}
	case percent == 0 && h.backend != config.BackendLibkerf:
		return none("it has no percent of a GPU")
	case h.backend != config.BackendLibkerf:
		return none("backend " + h.backend.String() + " shares no GPU time; libkerf does, and mps limits threads")
	case !countsTime(h):
		return none("the counters of its programs are not whole: " + h.region.why())
	}
	times, counted := h.region.times(g.Claim.Placement) // of all that share its cap
	if !counted {
		return none("nobody on its GPU has a percent of it")
	}
	c := Compute{By: h.backend.String(), Why: r.pool.Compute.String(), Times: times, Priority: r.priorityOf(g, h)}
	if s := r.speaker(g); s != g.Claim.ID {
		c.Why, c.Times = c.Why+", counted together with grant "+string(s), nil
	}
	for _, t := range h.region.told {
		if t.past >= pastAfter {
			c.By, c.Why = ComputeNone, fmt.Sprintf("by the driver's samples it uses more of GPU %s than its share: %d percent of the last %s", t.gpu, t.percent, sharing.TimeRing)
		}
	}
	if len(h.region.uncounted) > 0 {
		c.By, c.Why = ComputeNone, uncountedTime(len(h.region.uncounted))
	}
	return c
}

// priorityOf is the class of a grant: its profile's, else its pod's. It needs the lock.
func (r *Runtime) priorityOf(g ledger.Grant, h *holding) int32 {
	return r.config.PriorityOf(g.Claim.Request.Profile, h.priority)
}

// uncountedTime says that processes do not take their turns.
func uncountedTime(n int) string {
	if n == 1 {
		return "a process uses the GPU without the preloaded library, and waits for no budget"
	}
	return "processes use the GPU without the preloaded library, and wait for no budget"
}

// times reads what the programs have counted; counted is false where they count nothing. It needs the runtime's lock
// for what the driver told.
func (g *region) times(p sharing.Placement) (out []Time, counted bool) {
	var budgets []libkerf.Budget
	_ = g.use(func(open *libkerf.Region) (err error) { // one that is spoilt is found by the upkeep
		budgets, err = open.Budgets()
		return err
	})
	out = make([]Time, len(p))
	for i, f := range p {
		out[i].Percent = -1
		for _, t := range g.told {
			if t.gpu == f.GPU {
				out[i].Percent = t.percent
			}
		}
		for _, b := range budgets {
			if b.GPU == f.GPU {
				counted = counted || b.Percent > 0
				out[i].Charged, out[i].Launches, out[i].Past, out[i].Waited = max(0, b.Ran), b.Launches, b.Past, max(0, b.Waited)
			}
		}
	}
	return out, counted
}
