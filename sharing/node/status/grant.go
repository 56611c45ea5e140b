// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// Weaker is a level below the one that a grant was given, and the reason.
type Weaker struct {
	Level  sharing.Level
	Reason string
}

// Facts are what a node knows of a grant at one moment. A reason is empty if the fact is not so.
type Facts struct {
	// Lost is why the cap or the usage cannot be verified. Fault is why the backend's server cannot be verified, and
	// Instance why the MIG instance is missing.
	Lost, Fault, Instance string
	// Shared says with whom the cap is shared, and Started which processes started with less memory.
	Shared, Started string
	// Weaker is what enforces the cap now; nil if the level is as given.
	Weaker        *Weaker
	NoDriver      bool
	ManagedMemory config.ManagedMemory
	// Health is that of the GPU and of the MIG instance of each share.
	Health []sharing.Health
	// Speaker is the grant that stands for all that share its cap.
	Speaker ledger.GrantID
	Time    TimeFacts
	// Found is what the guard found. Refused is what libkerf counts by GPU.
	Found   guard.Finding
	Refused map[sharing.GPURef]uint64
}

// TimeFacts are what libkerf knows of a grant's GPU time. Times is nil if nothing limits it; Unlimited then says why.
type TimeFacts struct {
	Times     []Time
	Unlimited string
	// Rule is how the pool shares GPU time.
	Rule     string
	Priority int32
}

// GrantOf is a grant as clients see it.
func GrantOf(g ledger.Grant, f Facts, s observe.Sample) Grant {
	out := Grant{
		Grant: g, Level: g.Level, LevelReason: g.LevelReason, Backend: g.Backend,
		PIDs:    s.PIDs[g.ID],
		Compute: computeOf(g, f), Events: eventsOf(g, f), Health: sharing.HealthOK,
	}
	out.setLevel(f)
	for i, fr := range g.Placement {
		used, known := sharing.Bytes(0), g.Active == nil // a grant that is not active uses nothing
		if g.Active != nil {
			used, known = s.Used(g.ID, fr.GPU)
		}
		out.Used, out.UsedKnown = append(out.Used, used), append(out.UsedKnown, known)
		out.Health = Worse(out.Health, f.Health[i])
		if pids := s.Unmanaged[fr.GPU]; fr.Whole && len(pids) > 0 {
			out.Level = sharing.LevelNone
			out.LevelReason = fmt.Sprintf(
				"GPU %s was granted whole, and processes that are not of this grant use it: pid %s", fr.GPU,
				lifecycle.Numbers(pids))
		}
	}
	return out
}

// setLevel sets the level that the grant has now. Later facts win.
func (g *Grant) setLevel(f Facts) {
	set := func(level sharing.Level, reason string) { g.Level, g.LevelReason = level, reason }
	if f.Lost != "" {
		set(sharing.LevelUnknown, f.Lost)
	}
	g.LevelReason = lifecycle.JoinSentences([]string{f.Shared, g.LevelReason})
	if f.Weaker != nil {
		set(f.Weaker.Level, f.Weaker.Reason)
	}
	// Started comes last, so that 'kerf resize' can leave out what the reason said before.
	g.LevelReason = lifecycle.JoinSentences([]string{g.LevelReason,
		f.ManagedMemory.CaveatAt(g.Level, g.Backend), f.Started})
	if g.Active == nil {
		return
	}
	if f.Fault != "" {
		set(sharing.LevelUnknown, f.Fault)
	}
	if f.NoDriver {
		set(sharing.LevelUnknown, "no driver answers")
	}
	if f.Instance != "" {
		set(sharing.LevelUnknown, f.Instance)
	}
}

// computeOf says whether something limits the GPU time of a grant.
func computeOf(g ledger.Grant, f Facts) Compute {
	_, percent := g.Placement.Total()
	none := func(why string) Compute { return Compute{By: ComputeNone, Reason: why} }
	way := backend.PropertiesOf(g.Backend)
	switch {
	case g.Request.Kind == sharing.KindWhole:
		return Compute{By: ComputeExclusive}
	case g.Active == nil:
		return none("no program uses the grant yet")
	case way.Served && percent > 0:
		return Compute{By: g.Backend.String(),
			Reason: "MPS limits the threads that each of its clients uses at once, and not their time"}
	case percent == 0 && !way.Counts:
		return none("it has no percent of a GPU")
	case !way.Counts:
		return none("backend " + g.Backend.String() + " shares no GPU time; libkerf does, and mps limits threads")
	case f.Time.Times == nil:
		return none(f.Time.Unlimited)
	}
	c := Compute{By: g.Backend.String(), Reason: f.Time.Rule, Times: f.Time.Times, Priority: f.Time.Priority}
	if f.Speaker != g.ID {
		c.Reason, c.Times = c.Reason+", counted together with grant "+string(f.Speaker), nil
	}
	if f.Time.Unlimited != "" {
		c.By, c.Reason = ComputeNone, f.Time.Unlimited
	}
	return c
}

// eventsOf has an entry for each share of an active grant. It is nil if another grant stands for all that share its
// cap.
func eventsOf(g ledger.Grant, f Facts) []CapEvents {
	if g.Active == nil || f.Speaker != g.ID {
		return nil
	}
	out := make([]CapEvents, len(g.Placement))
	for i, fr := range g.Placement {
		e := &out[i]
		e.Refused, e.Counted = f.Refused[fr.GPU], false
		if _, counted := f.Refused[fr.GPU]; counted {
			e.Counted = true
		}
		e.Violations, e.Delay = f.Found.Breaches(fr.GPU)
		e.Watched = f.Found.Watched || e.Violations > 0
	}
	return out
}

// Beyond says where the processes of a grant use more than its cap although its backend enforces it. Under the driver's
// limit that is memory that other grants made and handed over. It is also what the driver takes for a program that
// counts its memory itself. It does not say so if the guard enforces the cap. Managed memory is in no process list, see
// observe.Sample.Unattributed.
func Beyond(g ledger.Grant, watched bool, s observe.Sample, index func(sharing.GPURef) int) (out []string) {
	way := backend.PropertiesOf(g.Backend)
	if g.Active == nil || way.Misses == "" || watched {
		return nil
	}
	var slack sharing.Bytes
	if way.Counts {
		slack = guard.ContextSlack // of a context and its modules, before libkerf counts them
	}
	for _, f := range g.Caps() {
		if f.Whole {
			continue
		}
		held, known := s.ByProcess(g.ID, f.GPU)
		if most, err := f.Memory.Add(slack); !known || err != nil || held <= most {
			continue
		}
		out = append(out,
			fmt.Sprintf("grant %s: its processes hold %s of GPU %d, and its cap is %s: %s, and nothing ends it; %s",
				g.ID, held, index(f.GPU), f.Memory, way.Misses, way.Remedy))
	}
	return out
}
