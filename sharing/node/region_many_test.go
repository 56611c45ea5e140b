// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/counters"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// On a full node, in each of forty attachments, what a killed process held is back after one upkeep, and what lives
// keeps its own. So it is back within a second where an upkeep takes less than the three quarters that are left between
// two.
func TestManyAttachmentsGetBackWhatTheDeadHeld(t *testing.T) {
	const attachments = 40
	if counters.Every > time.Second/4 {
		t.Fatalf("an upkeep every %v", counters.Every)
	}
	g := newPreloaded(t, preloading)
	type one struct {
		activated lifecycle.Activated
		dead      *tenant
	}
	var all []one
	for i := range attachments {
		req := gib(1)
		req.UUIDs = []sharing.GPUID{g.gpus[i%len(g.gpus)].UUID}
		p := g.bench.tenant()
		a := one{g.bench.activate(p, "", req), g.bench.tenant()}
		g.counts(a.activated, 0, p, 100*sharing.MiB)
		g.counts(a.activated, 1, a.dead, 900*sharing.MiB)
		all = append(all, a)
	}
	for _, a := range all {
		if u := g.usage(a.activated); u.Used != 1000*sharing.MiB {
			t.Fatalf("before: %+v", u)
		}
		a.dead.end()
	}
	began := time.Now()
	g.bench.upkeep(t.Context())
	t.Logf("an upkeep of %d attachments took %v", attachments, time.Since(began))
	for i, a := range all {
		if u := g.usage(a.activated); u.Used != 100*sharing.MiB {
			t.Errorf("attachment %d: %+v", i, u)
		}
	}
}
