// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

const notEnforced = "the cap is not enforced"

// wantLevel checks the level of the first grant, and whether its reason says that the cap is not enforced.
func (g *guarded) wantLevel(when string, level sharing.Level, exceeds bool) {
	g.t.Helper()
	if s := g.shown(); s.Level != level || strings.Contains(s.LevelReason, notEnforced) != exceeds {
		g.t.Errorf("%s: level %v, %q; want %v", when, s.Level, s.LevelReason, level)
	}
}

// A process that counts and also allocates without the library lowers the level of its grant at the next check. The
// level returns when the usage is within the cap again. The size of one context does not lower it.
func TestLevelDropsAboveTheCap(t *testing.T) {
	reactive := preloading
	reactive.Backends = append([]sharing.Backend{}, append(preloading.Backends, sharing.BackendReactive)...)
	for name, c := range map[string]struct {
		pool config.Pool
		want sharing.Level
	}{"with the reactive backend": {reactive, sharing.LevelReactive}, "without": {preloading, sharing.LevelNone}} {
		t.Run(name, func(t *testing.T) {
			g := newPreloaded(t, c.pool)
			p, a := g.share(4)
			g.counts(a, 0, p, sharing.GiB)
			for _, step := range []struct {
				gib     int
				exceeds bool
			}{{1, false}, {5, false}, {15, true}, {6, true}, {4, false}} {
				g.holds(gibs(p, step.gib))
				g.bench.upkeep(t.Context())
				if step.exceeds {
					g.wantLevel("exceeds", c.want, true)
				} else {
					g.wantLevel("within", sharing.LevelUserspace, false)
				}
			}
			if u := g.usage(a); u.Limit != 4*sharing.GiB {
				t.Errorf("its cap: %+v", u)
			}
		})
	}
}

// If the driver does not tell what a process holds, the last known excess counts.
func TestLevelStaysLowWhileTheDriverDoesNotTell(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	g.counts(a, 0, p, sharing.GiB)
	g.holds(gibs(p, 15))
	g.bench.upkeep(t.Context())
	g.holds(gpudriver.ProcessUse{PID: p.PID})
	g.bench.upkeep(t.Context())
	g.wantLevel("unknown", sharing.LevelNone, true)
	g.holds()
	g.bench.upkeep(t.Context())
	g.wantLevel("within", sharing.LevelUserspace, false)
}

// MPS limits each process, so two of a grant may hold twice its cap: the level drops at the first check.
func TestLevelOfMPSDropsAboveTheCap(t *testing.T) {
	g, _ := newMPS(t)
	p, _ := g.share(4)
	use := gibs(p, 4)
	for _, step := range []struct {
		gib     int
		exceeds bool
	}{{4, false}, {5, false}, {8, true}, {4, false}} {
		use.Used, use.MPS = sharing.Bytes(step.gib)*sharing.GiB, true
		g.holds(use)
		g.looks(1)
		if step.exceeds {
			g.wantLevel("exceeds", sharing.LevelReactive, true)
		} else {
			g.wantLevel("within", sharing.LevelUserspace, false)
		}
	}
}
