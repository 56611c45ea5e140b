// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Least is the level that a share for the request must have on this GPU. It is never LevelUnknown.
func (g GPUState) Least(r sharing.Request) sharing.Level {
	return sharing.LeastOfShare(r.MinLevel, g.MinLevel)
}

// Demanded reports whether the request, profile or pool demands a level of a share on this GPU. Where none does, Least is the
// default.
func (g GPUState) Demanded(r sharing.Request) bool {
	return max(r.MinLevel, g.MinLevel) != sharing.LevelUnknown
}

// ShareLevel is the strongest level of Levels that a share can have; LevelUnknown if there is none.
func (g GPUState) ShareLevel() sharing.Level { return sharing.ShareLevel(g.Levels) }

// judgeLevel says why a share of g has too low a level for r. A level that is unknown now rules nothing out for ever.
func judgeLevel(g GPUState, r sharing.Request) verdict {
	best := g.ShareLevel()
	if r.Kind == sharing.KindWhole || g.GPU.MIG || best.AtLeast(g.Least(r)) {
		return verdict{}
	}
	why, unknown := because(g.LevelWhy), best == sharing.LevelUnknown
	v := verdict{never: !unknown, unknown: unknown}
	switch {
	case !g.Demanded(r) && unknown:
		v.reason = fmt.Sprintf("the enforcement level of its shares is unknown%s; %s", why, sharing.AllowUnenforced)
	case !g.Demanded(r):
		v.reason = fmt.Sprintf("no backend enforces shares of this GPU%s; %s", why, sharing.AllowUnenforced)
	case !best.AtLeast(r.MinLevel) && r.MinLevel >= sharing.LevelHardware:
		v.reason = fmt.Sprintf("a fragment here can be held to its size at level %s at most, %s demanded: ask for a whole GPU", best, r.MinLevel)
		v.never = true
	case !best.AtLeast(r.MinLevel):
		v.reason = fmt.Sprintf("a fragment here can be held to its size at level %s at most, %s demanded%s", best, r.MinLevel, why)
	default:
		v.reason = fmt.Sprintf("a fragment here can be held to its size at level %s at most, and its pool's rules demand %s%s", best, g.MinLevel, why)
	}
	return v
}

// because appends a reason, if there is one.
func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}
