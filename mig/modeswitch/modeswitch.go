// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package modeswitch decides which idle GPUs switch their MIG mode, because a request fits no GPU in its present mode.
//
// It is pure: the GPUs, the pods that do not fit and the time go in, and the mode switches come out. It switches only
// an idle GPU that its pool leaves to demand, and whose mode is old enough for the pool. It makes no useless switch. It
// serves the pod that has waited longest first.
//
// Not promised: that a GPU is still idle when it is turned. Who turns it looks again.
package modeswitch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// GPU is one whose mode is demand's to change.
type GPU struct {
	ID    sharing.GPUID
	Index int
	// On is MIG mode.
	On bool
	// Busy says who or what is on it, or why it must not be touched now; empty for one that is idle. It is a clause.
	Busy string
	// SwitchedAt is when its mode changed last; zero where it has not.
	SwitchedAt time.Time
}

// Need is a request that found no room.
type Need struct {
	// Who asks, for people.
	Who string
	// Since is when it found none first.
	Since time.Time
	// On is true where MIG mode is wanted of a GPU.
	On bool
	// Prefer are GPUs that the scheduler planned for it, best first.
	Prefer []sharing.GPUID
	// Fits reports whether it has room once these GPUs have the mode that it wants. More GPUs never take room away.
	Fits func(turned []sharing.GPUID) bool
}

// Switch is one GPU's change of mode.
type Switch struct {
	GPU sharing.GPUID
	On  bool
	// For is who needs it.
	For string
}

// Wait is a need that a turn would answer, and none can be made now.
type Wait struct {
	Who string
	// Reason names each GPU that would do, and what keeps it; a clause.
	Reason string
}

// Plan is what is to be done now, and what waits.
type Plan struct {
	Switches []Switch
	Pending  []Wait
}

// Decide says what to turn. hold is how long a GPU keeps a mode, from the last change on. A need that has room by now,
// or that no change of mode would give room, is left out.
func Decide(gpus []GPU, needs []Need, hold time.Duration, now time.Time) Plan {
	needs = slices.Clone(needs)
	slices.SortStableFunc(needs, func(a, b Need) int {
		return cmp.Or(a.Since.Compare(b.Since),
			cmp.Compare(a.Who, b.Who))
	})
	var p Plan
	for _, n := range needs {
		turned := p.to(n.On)
		if n.Fits(turned) {
			continue
		}
		var ready, kept []GPU
		for _, g := range gpus {
			switch {
			case g.On == n.On || p.has(g.ID):
			case BlockedReason(g, hold, now) == "":
				ready = append(ready, g)
			default:
				kept = append(kept, g)
			}
		}
		byPreference(ready, n.Prefer)
		if add, ok := fewest(n, turned, ready); ok {
			for _, id := range add {
				p.Switches = append(p.Switches, Switch{GPU: id, On: n.On, For: n.Who})
			}
			continue
		}
		if text, ok := missing(n, turned, ready, kept, hold, now); ok {
			p.Pending = append(p.Pending, Wait{Who: n.Who, Reason: text})
		}
	}
	return p
}

// to are the GPUs that the plan turns to a mode.
func (p Plan) to(on bool) []sharing.GPUID {
	var out []sharing.GPUID
	for _, t := range p.Switches {
		if t.On == on {
			out = append(out, t.GPU)
		}
	}
	return out
}

func (p Plan) has(id sharing.GPUID) bool {
	return slices.ContainsFunc(p.Switches, func(t Switch) bool { return t.GPU == id })
}

// BlockedReason says what keeps a GPU's mode as it is; empty where nothing does. It is a clause.
func BlockedReason(g GPU, hold time.Duration, now time.Time) string {
	if g.Busy != "" {
		return g.Busy
	}
	if left := hold - now.Sub(g.SwitchedAt); !g.SwitchedAt.IsZero() && left > 0 {
		return fmt.Sprintf("changed its mode at %s, and keeps it for %s", g.SwitchedAt.Format(time.TimeOnly), hold)
	}
	return ""
}

// byPreference puts what was planned first, then what has had its mode for longest.
func byPreference(gpus []GPU, prefer []sharing.GPUID) {
	rank := func(g GPU) int {
		if i := slices.Index(prefer, g.ID); i >= 0 {
			return i
		}
		return len(prefer)
	}
	slices.SortFunc(gpus, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.SwitchedAt.Compare(b.SwitchedAt), cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.ID, b.ID))
	})
}

// fewest are GPUs that answer the need and of which none can be spared; false where all together do not.
func fewest(n Need, turned []sharing.GPUID, ready []GPU) ([]sharing.GPUID, bool) {
	all := slices.Clone(turned)
	for _, g := range ready {
		if all = append(all, g.ID); n.Fits(all) {
			for i := len(turned); i < len(all); {
				if without := slices.Delete(slices.Clone(all), i, i+1); n.Fits(without) {
					all = without
					continue
				}
				i++
			}
			return all[len(turned):], true
		}
	}
	return nil, false
}

// missing says what keeps the GPUs that would answer the need; false where they would not either.
func missing(n Need, turned []sharing.GPUID, ready, kept []GPU, hold time.Duration, now time.Time) (string, bool) {
	all := slices.Clone(turned)
	for _, g := range slices.Concat(ready, kept) {
		all = append(all, g.ID)
	}
	if len(kept) == 0 || !n.Fits(all) {
		return "", false
	}
	var out []string
	for _, g := range kept {
		out = append(out, fmt.Sprintf("GPU %d %s", g.Index, BlockedReason(g, hold, now)))
	}
	return strings.Join(out, "; "), true
}
