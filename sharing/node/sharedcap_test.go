// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// together are the asks of two containers with one cap on the first GPU: main, and side that shares main's.
func (b *bench) together(pod string, main, side []string) (m, s sharing.ContainerRequest) {
	b.t.Helper()
	m, s = b.ask(pod, "main", sharing.ContainerApp, main...), b.ask(pod, "side", sharing.ContainerApp, side...)
	m.Request.UUIDs = []sharing.GPUID{b.gpus[0].UUID}
	s.Request.UUIDs, s.With = m.Request.UUIDs, "main"
	all, err := sharing.MergeSharedCaps([]sharing.ContainerRequest{m, s})
	if err != nil {
		b.t.Fatal(err)
	}
	return all[0], all[1]
}

// reserved is the grants of a pod, made at its sandbox.
func (b *bench) reserved(asks ...sharing.ContainerRequest) {
	b.t.Helper()
	if err := b.ReservePod(b.t.Context(), asks); err != nil {
		b.t.Fatal(err)
	}
}

// sharedUsage is what the region of a grant says of the first GPU.
func (g *guarded) sharedUsage(id string) libkerf.Usage {
	g.t.Helper()
	return g.usage(lifecycle.Activated{ID: ledger.GrantID(id)})
}

// Two containers with one cap count in one region, in whatever order they start and end. Its cap is the sum of their
// requests, from the first of them until the last.
func TestTwoContainersOneCap(t *testing.T) {
	g := newPreloadedPods(t, preloading)
	m, s := g.together("p", []string{"gpu-memory-gib:6", "gpu-percent:20"},
		[]string{"gpu-memory-gib:4", "gpu-percent:10"})
	g.reserved(s, m)
	side := g.run(s)
	root := string(g.grant(m).ID)
	if u := g.sharedUsage(root); u.Limit != 10*sharing.GiB {
		t.Errorf("before the other is there: %+v", u)
	}
	main := g.run(m)
	for _, c := range []*container{main, side} {
		if c.in.Mounts[0].Source != g.bench.regionOf(root) || c.in.Env["KERF_MEMORY_BYTES"] != "10737418240" ||
			c.in.Env["KERF_PERCENT"] != "30" {
			t.Errorf("%s gets %+v %v", c.ask.Ref, c.in.Mounts[0], c.in.Env)
		}
	}
	v, _ := g.bench.Store.GPU(g.gpus[0].Ref())
	if v.GrantedMemory != 10*sharing.GiB || v.GrantedPercent != 30 || v.Grants != 2 {
		t.Errorf("booked %+v", v)
	}
	for _, gs := range g.bench.State(t.Context()).Grants {
		if gs.Backend != sharing.BackendLibkerf || gs.Level != sharing.LevelUserspace ||
			!strings.Contains(gs.LevelReason, "one cap of 10GiB for the containers main, side") {
			t.Errorf("shown as %v by %v: %q", gs.Level, gs.Backend, gs.LevelReason)
		}
	}
	_, attachments := g.bench.pacing().Attachments()
	if d := cmp.Diff([]sharing.Percent{30}, []sharing.Percent{attachments[0].Grant.Percent}); d != "" ||
		len(attachments) != 1 {
		t.Errorf("%d attachments share time: %s", len(attachments), d)
	}
	// What a process of either counts is counted once, and is free again when it has died.
	g.counts(lifecycle.Activated{ID: ledger.GrantID(root)}, 1, main.p, 5*sharing.GiB)
	g.counts(lifecycle.Activated{ID: ledger.GrantID(root)}, 2, side.p, 3*sharing.GiB)
	g.bench.upkeep(t.Context())
	if u := g.sharedUsage(root); u.Used != 8*sharing.GiB {
		t.Errorf("both live: %+v", u)
	}
	main.remove()
	g.bench.Reconcile(t.Context())
	g.bench.upkeep(t.Context())
	if u := g.sharedUsage(root); u.Used != 3*sharing.GiB || u.Limit != 10*sharing.GiB {
		t.Errorf("one is gone: %+v", u)
	}
	g.active(m, nil)
	g.check()
	again := g.run(m)
	if again.in.Mounts[0].Source != main.in.Mounts[0].Source {
		t.Errorf("made again, it counts in %q", again.in.Mounts[0].Source)
	}
	// The pod goes: what one may use is booked until both are gone.
	g.bench.PodRemoved("uid-p")
	again.remove()
	g.bench.Reconcile(t.Context())
	if v, _ := g.bench.Store.GPU(g.gpus[0].Ref()); v.GrantedMemory != 10*sharing.GiB {
		t.Errorf("one still runs, and %v are booked", v.GrantedMemory)
	}
	side.remove()
	g.gone("p")
	g.bench.upkeep(t.Context())
	if _, err := os.Stat(filepath.Join(g.bench.opt.Client.Dir, root)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the region is left: %v", err)
	}
}

// All is found again by the next agent, from the record or, where that is lost, from the containers, in any order.
func TestOneCapOverRestarts(t *testing.T) {
	for name, lost := range map[string]bool{"record": false, "notes": true} {
		t.Run(name, func(t *testing.T) {
			g := newPreloadedPods(t, preloading)
			m, s := g.together("p", []string{"gpu-memory-gib:6", "gpu-percent:20"},
				[]string{"gpu-memory-gib:4", "gpu-percent:10"})
			g.reserved(m, s)
			main, side := g.run(m), g.run(s)
			root := string(g.grant(m).ID)
			if lost {
				g.bench.loseRecord()
				g.restartPreloading()
				g.witness(side.seen(), main.seen())
			} else {
				g.restartPreloading()
			}
			for _, c := range []*container{main, side} {
				if got := g.active(c.ask, c); string(got.Root()) != root ||
					got.Caps()[0].Memory != 10*sharing.GiB {
					t.Errorf("%s: %+v", c.ask.Ref, got)
				}
			}
			if u := g.sharedUsage(root); u.Limit != 10*sharing.GiB {
				t.Errorf("%+v", u)
			}
			g.check()
			main.remove()
			side.remove()
			g.gone("p")
		})
	}
}

// An init container has a separate grant, never one with a shared cap. The pod gets all of its grants or none.
func TestOneCapBesideOthers(t *testing.T) {
	g := newPreloadedPods(t, preloading)
	m, s := g.together("p", []string{"gpu-memory-gib:6"}, []string{"gpu-memory-gib:4"})
	first := g.initc("p", "first", "gpu-memory-gib:2")
	g.reserved(first, s, m)
	if a, b := g.grant(first), g.grant(m); a == nil || a.ID == b.ID {
		t.Errorf("the init container has %+v", a)
	}
	m2, s2 := g.together("q", []string{"gpu-memory-gib:35"}, []string{"gpu-memory-gib:35"})
	err := g.bench.ReservePod(t.Context(), []sharing.ContainerRequest{m2, s2})
	refused(t, err, sharing.ErrExhausted, "70GiB")
	if g.grant(m2) != nil || g.grant(s2) != nil {
		t.Error("half of a pod is held")
	}
	_, err = g.bench.Inject(t.Context(), s2, g.newID())
	refused(t, err, sharing.ErrUnavailable, `container "main", whose cap it shares, has no grant yet`)
	// While the API server does not tell of the pod, a container that has its grant is made again, and no other.
	s.ExistingOnly, s.SharedCap = true, sharing.Request{}
	if again := g.run(s); again.in.Env["KERF_MEMORY_BYTES"] != "10737418240" {
		t.Errorf("made again with %v", again.in.Env)
	} else {
		again.remove()
	}
	m2.ExistingOnly, m2.SharedCap = true, sharing.Request{}
	_, err = g.bench.Inject(t.Context(), m2, g.newID())
	refused(t, err, sharing.ErrUnavailable,
		"shares a cap with another container, whose amount the API server has not reported yet")
	g.gone("p")
}

// A backend that cannot hold two cgroups to one cap is passed over, and where there is no other the pod is refused by
// name.
func TestOneCapNeedsABackend(t *testing.T) {
	works := choice.Support{Answer: choice.Supported}
	reports := map[string]struct {
		report choice.Report
		pool   config.Pool
		want   sharing.Backend
		says   string // of the backend that cannot, by its name
	}{
		"the driver alone": {choice.Report{sharing.BackendDriver: works}, config.Pool{Name: "a"},
			sharing.BackendNone, "driver: its limit is that of one cgroup"},
		"the driver and libkerf": {choice.Report{sharing.BackendDriver: works, sharing.BackendLibkerf: works},
			preloading, sharing.BackendLibkerf, ""},
		"mps alone": {choice.Report{sharing.BackendMPS: works},
			config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS}},
			sharing.BackendNone, "mps: its limit is that of each process"},
		"the driver and reactive": {choice.Report{sharing.BackendDriver: works, sharing.BackendReactive: works}, both,
			sharing.BackendReactive, ""},
	}
	for name, tt := range reports {
		t.Run(name, func(t *testing.T) {
			g := newPreloadedPods(t, tt.pool)
			g.bench.opt.MPS = &fakeMPS{users: map[string]MPSAttachment{}}
			for _, gpu := range g.gpus {
				g.bench.SetLevel(gpu.Ref(), tt.report)
			}
			m, s := g.together("p", []string{"gpu-memory-gib:6"}, []string{"gpu-memory-gib:4"})
			err := g.bench.ReservePod(t.Context(), []sharing.ContainerRequest{m, s})
			if tt.want == sharing.BackendNone {
				refused(t, err, sharing.ErrUnsupported,
					"no backend of this node enforces one cap for several containers", "remove share-cap-with")
				refused(t, err, sharing.ErrUnsupported, tt.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			main, side := g.run(m), g.run(s)
			for _, gs := range g.bench.State(t.Context()).Grants {
				if gs.Backend != tt.want ||
					!strings.Contains(gs.LevelReason, "driver: its limit is that of one cgroup") {
					t.Errorf("held by %v: %q", gs.Backend, gs.LevelReason)
				}
			}
			g.bench.VerifyAll(t.Context())
			for _, c := range []*container{main, side} { // no limit of one of them is the cap
				if limit, _, err := g.bench.caps.Read(t.Context(), c.group.Dir, g.gpus[0].Ref()); !errors.Is(err,
					sharing.ErrNotFound) {
					t.Errorf("%s: limit %v, %v", c.ask.Ref, limit, err)
				}
			}
		})
	}
}

// Where watching holds two containers to one cap, what both use is added up, and the victim may be in either.
func TestOneCapWatched(t *testing.T) {
	g := newPreloadedPods(t, killing)
	m, s := g.together("p", []string{"gpu-memory-gib:6"}, []string{"gpu-memory-gib:4"})
	g.reserved(m, s)
	main, side := g.run(m), g.run(s)
	g.holds(gibs(main.p, 3), gibs(side.p, 6))
	g.looks(4)
	g.lives(main.p)
	g.lives(side.p)
	g.holds(gibs(main.p, 5), gibs(side.p, 6))
	g.looks(4)
	g.dead(side.p)
	g.lives(main.p)
	if d := cmp.Diff([]string{reactive.OverCap.String()}, g.seen.killed); d != "" {
		t.Error(d)
	}
	side.exit()
	g.bench.Reconcile(t.Context())
	g.holds(gibs(main.p, 9)) // all of the cap is its own while the other rests
	g.looks(4)
	g.lives(main.p)
}

// A cap that is shared changes with each of its parts, and is never lower than what both use.
func TestLimitOfASharedCap(t *testing.T) {
	g := newPreloadedPods(t, preloading)
	m, s := g.together("p", []string{"gpu-memory-gib:6"}, []string{"gpu-memory-gib:4"})
	g.reserved(m, s)
	main, side := g.run(m), g.run(s)
	root := string(g.grant(m).ID)
	g.holds(gibs(main.p, 7), gibs(side.p, 1))
	root0 := lifecycle.Peer{UID: 0, PID: os.Getpid()}
	refused(t, g.bench.Limit(t.Context(), root0, g.grant(s).ID, 1*sharing.GiB), sharing.ErrConflict, "8GiB",
		"7GiB")
	if u := g.sharedUsage(root); u.Limit != 10*sharing.GiB {
		t.Errorf("refused, and %+v", u)
	}
	for _, step := range []struct {
		ask  sharing.ContainerRequest
		to   sharing.Bytes
		want sharing.Bytes
	}{{s, 2 * sharing.GiB, 8 * sharing.GiB}, {m, 20 * sharing.GiB, 22 * sharing.GiB}} {
		if err := g.bench.Limit(t.Context(), root0, g.grant(step.ask).ID, step.to); err != nil {
			t.Fatal(err)
		}
		if u := g.sharedUsage(root); u.Limit != step.want {
			t.Errorf("%s at %v: %+v, want %v", step.ask.Ref, step.to, u, step.want)
		}
	}
	main.exit()
	g.bench.Reconcile(t.Context())
	g.holds(gibs(side.p, 1))
	// it does not run, and the cap is set
	if err := g.bench.Limit(t.Context(), root0, g.grant(m).ID, 3*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	if u := g.sharedUsage(root); u.Limit != 5*sharing.GiB {
		t.Errorf("%+v", u)
	}
}
