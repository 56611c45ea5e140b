// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// strong reports whether a share for the request has the level that request and pool demand. What is not known of a GPU that
// is not healthy rules nothing out: its health does.
func strong(g allocator.GPUState, r sharing.Request) bool {
	if r.Kind == sharing.KindWhole {
		return true
	}
	level := g.ShareLevel()
	if level == sharing.LevelUnknown && g.GPU.Health != sharing.HealthOK {
		return true
	}
	return level.AtLeast(g.Least(r)) && !contested(g, r)
}

// contested reports whether neighbours could take what the request wants held against them.
func contested(g allocator.GPUState, r sharing.Request) bool {
	return g.GPU.Contested() && r.MinLevel >= sharing.LevelDriver
}

// tooWeak says why no GPU of the node is strong enough for the request.
func tooWeak(s *state, r sharing.Request) string {
	for _, g := range s.gpus {
		if g.ShareLevel().AtLeast(r.MinLevel) && contested(g, r) {
			return fmt.Sprintf("memory is given %s times over, %v asked", g.GPU.Overcommit.Memory, r.MinLevel)
		}
	}
	best := strongest(s)
	if g, is := unenforced(s, r); is {
		why := ""
		if g.LevelWhy != "" {
			why = " (" + g.LevelWhy + ")"
		}
		if best == sharing.LevelUnknown {
			return fmt.Sprintf("the enforcement level of shares is unknown%s; %s", why, sharing.AllowUnenforced)
		}
		return fmt.Sprintf("no backend enforces shares%s; %s", why, sharing.AllowUnenforced)
	}
	if least := ruledOut(s, r); least != sharing.LevelUnknown {
		return fmt.Sprintf("shares are held to their size at level %v at most, %v demanded by the pool's rules", best, least)
	}
	return fmt.Sprintf("shares are held to their size at level %v at most, %v asked", best, r.MinLevel)
}

// unenforced is the first GPU of the node that rejects the request by the default alone: nobody demands a level, and no
// backend enforces shares there.
func unenforced(s *state, r sharing.Request) (allocator.GPUState, bool) {
	for _, g := range s.gpus {
		if r.Admits(g.GPU) && !g.GPU.MIG && !g.Demanded(r) && !strong(g, r) {
			return g, true
		}
	}
	return allocator.GPUState{}, false
}

// ruledOut is the least level that the pool's rules demand of a GPU that holds shares as strongly as the request demands, and
// less so than the rules do; LevelUnknown where there is none.
func ruledOut(s *state, r sharing.Request) sharing.Level {
	least := sharing.LevelUnknown
	for _, g := range s.gpus {
		if l := g.ShareLevel(); r.Admits(g.GPU) && l.AtLeast(r.MinLevel) && !l.AtLeast(g.MinLevel) && (least == sharing.LevelUnknown || g.MinLevel < least) {
			least = g.MinLevel
		}
	}
	return least
}

// lacks is what the node lacks in a phrase that equal nodes share.
func lacks(s *state, r sharing.Request) string {
	if _, is := unenforced(s, r); is {
		return "do not enforce shares (" + sharing.AllowUnenforced + ")"
	}
	if least := ruledOut(s, r); least != sharing.LevelUnknown {
		return "lack level " + least.String()
	}
	return "lack level " + r.MinLevel.String()
}

func strongest(s *state) sharing.Level {
	best := sharing.LevelUnknown
	for _, g := range s.gpus {
		best = max(best, g.ShareLevel())
	}
	return best
}
