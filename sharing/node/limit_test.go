// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

const root = 0

// as is a caller of that uid; nothing else of it counts here.
func as(uid uint32) lifecycle.Peer { return lifecycle.Peer{UID: uid} }

// inForce is the driver's limit for an attachment on one GPU.
func (b *bench) inForce(id ledger.GrantID, gpu sharing.GPURef) sharing.Bytes {
	b.t.Helper()
	g, ok := b.Store.Get(id)
	if !ok || g.Active == nil {
		b.t.Fatalf("grant %q has no attachment", id)
	}
	limit, _, err := b.caps.Read(b.t.Context(), g.Active.Cgroup, gpu)
	if err != nil {
		b.t.Fatal(err)
	}
	return limit
}

// sized requires the same amount in ledger, checkpoint and cap of a grant, on each of its GPUs.
func (b *bench) sized(id ledger.GrantID, want sharing.Bytes) {
	b.t.Helper()
	g, _ := b.Store.Get(id)
	b.consistent()
	for _, f := range g.Placement {
		if got := b.inForce(id, f.GPU); f.Memory != want || got != want {
			b.t.Errorf("booked %s, enforced %s on %s, want %s", f.Memory, got, f.GPU, want)
		}
	}
	for _, r := range b.recorded() {
		for _, f := range r.Shares {
			if r.ID == string(id) && f.Memory != want {
				b.t.Errorf("on record %s, want %s", f.Memory, want)
			}
		}
	}
}

func TestLimitUpAndDown(t *testing.T) {
	b := newBench(t)
	b.still()
	p := b.tenant()
	id := b.activate(p, "", gib(10)).ID
	b.sized(id, 10*sharing.GiB)
	for _, n := range []sharing.Bytes{12, 79, 3, 10} {
		if err := b.Limit(t.Context(), as(root), id, n*sharing.GiB); err != nil {
			t.Fatal(err)
		}
		b.sized(id, n*sharing.GiB)
	}
	// The user of the grant may give back, and what was given back is free for another.
	if err := b.Limit(t.Context(), as(1000), id, 4*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	b.sized(id, 4*sharing.GiB)
	for range 3 {
		b.activate(b.tenant(), "", gib(75))
	}
	refused(t, b.Limit(t.Context(), as(root), id, 5*sharing.GiB), sharing.ErrExhausted, "4GiB free of 79GiB",
		"5GiB requested")
	b.sized(id, 4*sharing.GiB)
}

func TestLimitOverSeveralGPUs(t *testing.T) {
	b := newBench(t)
	b.still()
	id := b.activate(b.tenant(), "", sharing.Request{Memory: 20 * sharing.GiB, GPUs: 2}).ID
	if err := b.Limit(t.Context(), as(root), id, 30*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	b.sized(id, 15*sharing.GiB)
	// One GPU that fails leaves the other as it was.
	b.caps.set(func() { b.caps.broken = b.gpus[1].Ref() })
	refused(t, b.Limit(t.Context(), as(root), id, 10*sharing.GiB), sharing.ErrLost)
	b.caps.set(func() { b.caps.broken = sharing.GPURef{UUID: ""} })
	b.sized(id, 15*sharing.GiB)
	b.SetHealth(b.gpus[1].UUID, sharing.HealthSuspect, "hangs")
	refused(t, b.Limit(t.Context(), as(root), id, 10*sharing.GiB), sharing.ErrUnavailable, "does not answer")
	b.sized(id, 15*sharing.GiB)
}

func TestLimitIsRefused(t *testing.T) {
	b := newBench(t)
	b.still()
	id := b.activate(b.tenant(), "", gib(10)).ID
	whole := b.activate(b.tenant(), "", sharing.Request{Kind: sharing.KindWhole, GPUs: 1}).ID
	for name, tc := range map[string]struct {
		id     ledger.GrantID
		peer   lifecycle.Peer
		amount sharing.Bytes
		want   error
		word   string
	}{
		"unowned":         {"k-none", as(root), sharing.GiB, sharing.ErrNotFound, ""},
		"whole":           {whole, as(root), sharing.GiB, sharing.ErrUnsupported, "no other size"},
		"another's":       {id, as(1001), sharing.GiB, sharing.ErrDenied, "1001"},
		"raised by users": {id, as(1000), 11 * sharing.GiB, sharing.ErrDenied, "only root"},
		"nothing":         {id, as(root), 0, sharing.ErrInvalid, "too little"},
		"more than it is": {id, as(root), 81 * sharing.GiB, sharing.ErrExhausted, "81GiB requested"},
		"absurd":          {id, as(root), 1<<64 - 1, sharing.ErrExhausted, ""},
	} {
		if err := b.Limit(t.Context(), tc.peer, tc.id, tc.amount); !errors.Is(err, tc.want) || tc.word != "" &&
			!strings.Contains(err.Error(), tc.word) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.word)
		}
	}
	b.sized(id, 10*sharing.GiB)
	b.Detach("driver unloaded")
	refused(t, b.Limit(t.Context(), as(root), id, sharing.GiB), sharing.ErrUnavailable)
}

// Neither a driver that refuses a limit below the use nor one that takes it lets memory in use be granted again.
func TestLimitBelowUse(t *testing.T) {
	for name, takes := range map[string]bool{"the driver refuses": false, "the driver takes it": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.still()
			id := b.activate(b.tenant(), "", gib(10)).ID
			b.caps.set(func() { b.caps.used, b.caps.strict = 8*sharing.GiB, !takes })
			refused(t, b.Limit(t.Context(), as(root), id, 6*sharing.GiB), sharing.ErrConflict, "hold 8GiB",
				"lowered to 6GiB")
			b.sized(id, 10*sharing.GiB)
			if err := b.Limit(t.Context(), as(root), id, 8*sharing.GiB); err != nil {
				t.Error(err)
			}
			b.sized(id, 8*sharing.GiB)
		})
	}
}

// Without a driver that limits, the ledger has the cap: it changes at once, and never below the usage.
func TestLimitOfAWatchedGrant(t *testing.T) {
	g := newGuarded(t, config.Pool{Backends: []sharing.Backend{sharing.BackendReactive}, OverCap: config.OverCapKill})
	p, a := g.share(10)
	g.holds(gibs(p, 8))
	refused(t, g.bench.Limit(t.Context(), as(root), a.ID, 6*sharing.GiB), sharing.ErrConflict, "hold 8GiB")
	if err := g.bench.Limit(t.Context(), as(root), a.ID, 9*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	g.looks(3)
	g.lives(p)
	g.holds(gpudriver.ProcessUse{PID: p.PID})
	g.bench.changed.announce() // a picture from before is old
	refused(t, g.bench.Limit(t.Context(), as(root), a.ID, 5*sharing.GiB), sharing.ErrUnavailable, "does not tell")
	g.holds(gibs(p, 10))
	g.looks(3)
	g.dead(p)
}

func TestLimitOfAPod(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("a", "gpu-memory-gib:10")
	c := b.run(ask)
	g := b.active(ask, c)
	refused(t, b.Limit(t.Context(), as(1000), g.ID, 5*sharing.GiB), sharing.ErrDenied)
	if err := b.Limit(t.Context(), as(root), g.ID, 12*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	b.sized(g.ID, 12*sharing.GiB)
	// Its next instance has the new size, over a restart of the agent too.
	c.remove()
	b.Reconcile(t.Context())
	b.still()
	again := b.run(ask)
	again.limits(map[sharing.GPURef]sharing.Bytes{g.Placement[0].GPU: 12 * sharing.GiB})
	again.remove()
	b.gone("a")
}

// While an init container uses a part of a grant, the grant stays as it is.
func TestLimitDuringAnInitContainer(t *testing.T) {
	b := newPodBench(t)
	b.still()
	main, first := b.app("a", "gpu-memory-gib:10"), b.initc("a", "first", "gpu-memory-gib:4")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{main, first}); err != nil {
		t.Fatal(err)
	}
	c := b.run(first)
	id := b.grant(main).ID
	refused(t, b.Limit(t.Context(), as(root), id, 12*sharing.GiB), sharing.ErrUnavailable, "init container")
	c.remove()
	b.Reconcile(t.Context())
	if err := b.Limit(t.Context(), as(root), id, 12*sharing.GiB); err != nil {
		t.Error(err)
	}
	b.gone("a")
}

// Wherever an agent dies, the next one has the old size or the new one, and ledger and cap agree.
func TestLimitOverACrash(t *testing.T) {
	for _, to := range []sharing.Bytes{20, 5} {
		for _, point := range []string{"limit-after-book", "limit-after-cap", "limit-after-record"} {
			t.Run(fmt.Sprintf("%s to %d", point, to), func(t *testing.T) {
				b := newBench(t)
				b.still()
				id := b.activate(b.tenant(), "", gib(10)).ID
				b.crash(point, func() { _ = b.Limit(context.WithoutCancel(t.Context()), as(root), id, to*sharing.GiB) })
				want := 10 * sharing.GiB
				if point == "limit-after-record" || to > 10 {
					want = to * sharing.GiB // a larger amount is in the checkpoint before the cap is set
				}
				b.sized(id, want)
			})
		}
	}
}

// A disk that is full refuses to let a grant grow, and nothing of it stays.
func TestLimitWithoutARecord(t *testing.T) {
	b := newBench(t)
	b.still()
	id := b.activate(b.tenant(), "", gib(10)).ID
	back := b.diskAway()
	if err := b.Limit(t.Context(), as(root), id, 20*sharing.GiB); err == nil {
		t.Error("a limit was raised without a record of it")
	}
	back()
	b.sized(id, 10*sharing.GiB)
}
