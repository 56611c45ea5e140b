// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// sharerOf is one container of a pod with a shared cap, and what a naive model knows of it.
type sharerOf struct {
	ask  sharing.ContainerRequest
	gibs int
	runs *container
}

// Containers with a shared cap start, end and change their parts at random, and the agent restarts. The cap is always
// the sum of the parts, reserved in full, from the first container that runs to the last.
func TestSharedCapAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	g := newPreloadedPods(t, preloading)
	var all []*sharerOf
	var asks []sharing.ContainerRequest
	for i, name := range []string{"main", "b", "c"} {
		a := g.ask("p", name, sharing.ContainerApp, fmt.Sprintf("gpu-memory-gib:%d", 4+i))
		if a.Request.UUIDs = []sharing.GPUID{g.gpus[0].UUID}; i > 0 {
			a.With = "main"
		}
		asks, all = append(asks, a), append(all, &sharerOf{gibs: 4 + i})
	}
	asks, err := sharing.MergeSharedCaps(asks)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range asks {
		all[i].ask = a
	}
	g.reserved(asks...)
	if err := g.bench.Store.Save(); err != nil { // as the first of them does
		t.Fatal(err)
	}
	root := g.grant(asks[0]).ID
	done := map[string]int{}
	for range 150 {
		one := all[r.IntN(len(all))]
		what := ""
		switch k := r.IntN(10); {
		case k < 6 && one.runs == nil:
			what, one.runs = "started", g.run(one.ask)
		case k < 4:
			if one.runs != nil {
				one.runs.remove()
				g.bench.Reconcile(t.Context())
				what, one.runs = "ended", nil
			}
		case k < 7:
			what, one.gibs = "changed", 1+r.IntN(20)
			// #nosec G115 -- small
			if err := g.bench.Limit(t.Context(), lifecycle.Peer{PID: os.Getpid()}, g.grant(one.ask).ID,
				sharing.Bytes(one.gibs)*sharing.GiB); err != nil {
				t.Fatal(err)
			}
		case k < 9:
			g.bench.upkeep(t.Context())
		default:
			what = "restarted"
			g.restartPreloading()
			g.witness(g.runningOf(all)...)
		}
		done[what]++
		g.wantShared(all, root)
	}
	for _, one := range all {
		if one.runs != nil {
			one.runs.remove()
		}
	}
	g.gone("p")
	g.bench.upkeep(t.Context())
	if left, err := os.ReadDir(g.bench.opt.Client.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	t.Log(done)
}

// runningOf is what the container runtime tells.
func (g *guarded) runningOf(all []*sharerOf) (out []sharing.Seen) {
	for _, one := range all {
		if one.runs != nil {
			out = append(out, one.runs.seen())
		}
	}
	return out
}

// wantShared compares the ledger, and the caps while any container runs, with the model.
func (g *guarded) wantShared(all []*sharerOf, root ledger.GrantID) {
	g.t.Helper()
	g.check()
	var sum sharing.Bytes
	running := 0
	for _, one := range all {
		sum += sharing.Bytes(one.gibs) * sharing.GiB // #nosec G115 -- small
		gr := g.active(one.ask, one.runs)
		if gr.Root() != root {
			g.t.Fatalf("%s shares the cap of %q", one.ask.Ref, gr.Root())
		}
		if one.runs != nil {
			running++
		}
	}
	if v, _ := g.bench.Store.GPU(g.gpus[0].Ref()); v.GrantedMemory != sum {
		g.t.Fatalf("%v are booked, want %v", v.GrantedMemory, sum)
	}
	if running == 0 {
		return
	}
	open, err := libkerf.Open(g.bench.regionOf(string(root)))
	if err != nil {
		g.t.Fatal(err)
	}
	defer open.Close()
	if u := open.Usage()[0]; u.Limit != sum {
		g.t.Fatalf("%d run, and %v are enforced, want %v", running, u.Limit, sum)
	}
}
