// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// ruledPool is a pool with these rules, with a list of backends in addition to MPS.
func ruledPool(rules ...config.GPURule) config.Pool {
	return config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive},
		GPURules: rules}
}

// byRule is a rule for one GPU.
func byRule(index int, least sharing.Level, list ...sharing.Backend) config.GPURule {
	return config.GPURule{Indexes: []int{index}, Settings: config.GPUSettings{Backends: config.BackendListOf(list...),
		MinLevel: least}}
}

// newRuled is a node on which MPS and watching work on every GPU.
func newRuled(t *testing.T, pool config.Pool) (*guarded, *fakeMPS) {
	t.Helper()
	g := newGuarded(t, pool)
	m := &fakeMPS{users: map[string]MPSAttachment{}}
	g.bench.opt.MPS, g.bench.Runtime.MPS = m, m
	g.mpsEverywhere()
	return g, m
}

func (g *guarded) mpsEverywhere() {
	yes := choice.Support{Answer: choice.Supported}
	for _, gpu := range g.gpus {
		g.bench.SetLevel(gpu.Ref(), choice.Report{sharing.BackendMPS: yes, sharing.BackendReactive: yes})
	}
}

// use applies a pool.
func (g *guarded) use(pool config.Pool) {
	g.t.Helper()
	doc := config.Spec{Pools: []config.Pool{pool},
		Profiles: []config.Profile{{Name: "watched", Memory: sharing.GiB,
			Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive}}}}
	c, err := config.New(doc)
	if err != nil {
		g.t.Fatal(err)
	}
	g.bench.opt.Config, g.bench.opt.Pool = c, pool
	g.bench.apply(c, pool)
}

// on grants so much of one GPU and says what holds it.
func (g *guarded) on(gpu int, req sharing.Request) (sharing.Backend, *tenant) {
	g.t.Helper()
	p := g.tenant()
	req.UUIDs = []sharing.GPUID{g.gpus[gpu].UUID}
	a := g.activate(p, "", req)
	g.t.Cleanup(func() { p.end(); g.bench.Reconcile(g.t.Context()) })
	return backendIn(g, a.ID), p
}

var (
	mpsFirst = []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS, sharing.BackendReactive}
	watching = []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive}
)

// Two GPUs of one node enforce shares in two ways at once, whatever profile a grant has. If a GPU cannot enforce its
// rule, it is granted whole alone.
func TestGPUsOfOneNodeDiffer(t *testing.T) {
	g, _ := newRuled(t, config.Pool{})
	g.use(ruledPool(byRule(0, sharing.LevelUserspace, mpsFirst...), byRule(2, sharing.LevelDriver)))
	byProfile := sharing.Request{Profile: "watched"}
	for _, tt := range []struct {
		gpu  int
		req  sharing.Request
		want sharing.Backend
	}{{0, gib(2), sharing.BackendMPS}, {0, byProfile, sharing.BackendMPS}, {1, gib(2), sharing.BackendReactive},
		{1, byProfile, sharing.BackendReactive}} {
		if got, _ := g.on(tt.gpu, tt.req); got != tt.want {
			t.Errorf("%+v on GPU %d is held by %v, want %v", tt.req, tt.gpu, got, tt.want)
		}
	}
	refused := gib(2)
	refused.UUIDs = []sharing.GPUID{g.gpus[2].UUID}
	if _, err := g.bench.Reserve(t.Context(), g.tenant().Peer, "", refused); !errors.Is(err, sharing.ErrUnsupported) ||
		!strings.Contains(err.Error(), "its pool's rules demand driver") {
		t.Errorf("a share of a GPU that must be held by the driver: %v", err)
	}
	if got, p := g.on(2, sharing.Request{Kind: sharing.KindWhole, GPUs: 1}); got != sharing.BackendNone {
		t.Errorf("all of it is held by %v", got)
	} else {
		p.end()
		g.bench.Reconcile(t.Context())
	}
	both := gib(4)
	both.GPUs, both.UUIDs = 2, []sharing.GPUID{g.gpus[1].UUID, g.gpus[2].UUID}
	if _, err := g.bench.Reserve(t.Context(), g.tenant().Peer, "", both); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("a share of it and of another: %v", err)
	}
	books := g.bench.LedgerState()
	for i, want := range [][]sharing.Level{{sharing.LevelExclusive, sharing.LevelUserspace},
		{sharing.LevelExclusive, sharing.LevelReactive}, {sharing.LevelExclusive, sharing.LevelReactive}} {
		if d := cmp.Diff(want, books.GPUs[i].Levels); d != "" {
			t.Errorf("levels of GPU %d (-want +got):\n%s", i, d)
		}
	}
	if l := books.GPUs[2].Settings.MinLevel; l != sharing.LevelDriver {
		t.Errorf("GPU 2 is booked with level %v", l)
	}
	for i, want := range []bool{true, false, false} {
		for _, b := range g.bench.State(t.Context()).GPUs[i].Backends {
			if b.Backend == sharing.BackendMPS && b.Listed != want {
				t.Errorf("GPU %d lists MPS: %v", i, b.Listed)
			}
		}
	}
	if !g.bench.settings.Lists(sharing.BackendMPS) || g.bench.settings.Lists(sharing.BackendLibkerf) {
		t.Error("what is listed")
	}
}

// A changed rule waits for the grants on the GPU. Until they have ended, new ones have the same backend, over a restart
// of the agent, too. An idle GPU has the new rule at once.
func TestRuledBackendsWaitForTheIdle(t *testing.T) {
	mps, before, after := byRule(0, sharing.LevelUserspace, mpsFirst...), byRule(1, sharing.LevelUnknown, watching...),
		byRule(1, sharing.LevelUserspace, mpsFirst...)
	g, m := newRuled(t, config.Pool{})
	rules := filepath.Join(t.TempDir(), applied.File)
	g.bench.settings.Load(rules, "boot")
	g.use(ruledPool(mps, before))
	_, first := g.on(0, gib(2))
	_, second := g.on(1, gib(2))
	next := ruledPool(byRule(0, sharing.LevelUnknown, watching...), after, byRule(2, sharing.LevelUserspace,
		mpsFirst...))
	g.use(next)
	holds := func(when string, want ...sharing.Backend) {
		t.Helper()
		for i, b := range want {
			got, p := g.on(i, gib(1))
			if got != b {
				t.Errorf("%s: on GPU %d it is held by %v, want %v", when, i, got, b)
			}
			p.end()
			g.bench.Reconcile(t.Context())
		}
	}
	steps := func() []change.Step { g.bench.settings.Settle(); return g.bench.settings.Waiting() }
	holds("with others on them", sharing.BackendMPS, sharing.BackendReactive, sharing.BackendMPS)
	if w := steps(); len(w) != 2 || len(w[0].For) != 1 ||
		!slices.Equal(w[1].What, []string{"backends [driver, reactive] -> [driver, mps, reactive]",
			"minEnforcement of the pool -> userspace"}) {
		t.Errorf("waiting: %+v", w)
	}

	g.bench.opt.Pool = config.Pool{Name: "before the document is read"}
	r := New(g.bench.opt)
	if err := r.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settings.Load(rules, "boot")
	g.bench.Runtime = r
	g.use(next)
	r.settings.SetInventory(g.gpus)
	if err := r.Attach(t.Context(), gpudriver.Attached{Driver: g.driver, GPUs: g.gpus,
		Levels: map[sharing.GPURef]choice.Report{}}); err != nil {
		t.Fatal(err)
	}
	r.opt.MPS = m
	g.mpsEverywhere()
	holds("after a restart", sharing.BackendMPS, sharing.BackendReactive, sharing.BackendMPS)
	if w := steps(); len(w) != 2 {
		t.Errorf("waiting after a restart: %+v", w)
	}

	first.end()
	g.bench.Reconcile(t.Context())
	holds("when the first has ended", sharing.BackendReactive, sharing.BackendReactive)
	if w := steps(); len(w) != 1 || w[0].Index != 1 {
		t.Errorf("waiting for the second: %+v", w)
	}
	second.end()
	g.bench.Reconcile(t.Context())
	holds("when both have", sharing.BackendReactive, sharing.BackendMPS)
	if w := steps(); len(w) != 0 {
		t.Errorf("waiting for no grant: %+v", w)
	}
}

// For any sequence of rules and grants, no GPU has MPS shares together with other shares. A grant has the backend that
// was listed when its GPU was idle last, and an idle GPU follows the last rules.
func TestRuledBackendsRandom(t *testing.T) {
	g, _ := newRuled(t, config.Pool{})
	rnd := rand.New(rand.NewPCG(11, 5))
	lists := [][]sharing.Backend{nil, watching, mpsFirst, {sharing.BackendDriver, sharing.BackendMPS}}
	pool := func() config.Pool {
		var rules []config.GPURule
		for i := range 3 {
			if list := lists[rnd.IntN(len(lists))]; list != nil {
				rules = append(rules, byRule(i, sharing.LevelUnknown, list...))
			}
		}
		return ruledPool(rules...)
	}
	last := pool()
	g.use(last)
	since := map[int]config.BackendList{} // what was listed when a GPU was idle last
	running := map[int][]*tenant{}
	for step := range 150 {
		gpu := rnd.IntN(3)
		if len(running[gpu]) == 0 {
			since[gpu] = last.Of(g.gpus[gpu]).Backends
		}
		switch n := rnd.IntN(4); {
		case n == 0:
			last = pool()
			g.use(last)
		case n == 1 && len(running[gpu]) > 0:
			running[gpu][0].end()
			g.bench.Reconcile(t.Context())
			running[gpu] = running[gpu][1:]
		case len(running[gpu]) < 3:
			got, p := g.on(gpu, gib(1))
			running[gpu] = append(running[gpu], p)
			want := sharing.BackendReactive
			if strings.Contains(string(since[gpu]), "mps") {
				want = sharing.BackendMPS
			}
			if got != want {
				t.Fatalf("step %d: a share of GPU %d, which lists %q, is held by %v", step, gpu, since[gpu], got)
			}
		}
		held := map[sharing.GPURef]string{}
		for _, s := range g.bench.State(t.Context()).Grants {
			id := s.Placement[0].GPU
			if was, there := held[id]; there && was != fmt.Sprint(s.Backend) {
				t.Fatalf("step %d: GPU %s has shares held by %s and %v", step, id, was, s.Backend)
			}
			held[id] = fmt.Sprint(s.Backend)
		}
	}
}

// A reserve reaches the inventory of an idle GPU at once. The driver in use stays attached, no cap is read or set
// again, and health and cordons stay.
func TestReserveChangesInPlace(t *testing.T) {
	b := newBench(t)
	b.Runtime = New(b.opt)
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.attach()
	b.SetCordons(map[sharing.GPUID]string{b.gpus[1].UUID: "repair"})
	b.SetHealth(b.gpus[2].UUID, sharing.HealthSuspect, "hot")
	p := b.tenant()
	req := gib(4)
	req.UUIDs = []sharing.GPUID{b.gpus[0].UUID}
	a := b.activate(p, "", req)
	att, before := b.Runtime.Driver.Get(), b.Inventory()
	running, _ := b.Grant(a.ID)
	b.caps.set(func() { b.caps.fail, b.caps.silent = errors.New("a cap was set"), errors.New("a cap was read") })
	changed := b.Changed()
	b.apply(config.Default(), config.Pool{Name: "default", MemoryReserve: sharing.GiB})
	<-changed
	for i, reserve := range []sharing.Bytes{0, sharing.GiB, sharing.GiB} {
		want, is := before[i], b.Inventory()[i]
		want.Reserved += reserve
		if d := cmp.Diff(want, is); d != "" {
			t.Errorf("GPU %d (-want +got):\n%s", i, d)
		}
	}
	if b.Runtime.Driver.Get() != att {
		t.Error("the driver was attached again")
	}
	if g, _ := b.Grant(a.ID); g.Level != sharing.LevelDriver || g.LevelReason != running.LevelReason {
		t.Errorf("the grant is at level %v (%s)", g.Level, g.LevelReason)
	}
	b.caps.set(func() { b.caps.fail, b.caps.silent = nil, nil })
	p.end()
	b.Reconcile(t.Context())
	b.settings.Settle()
	if is := b.Inventory()[0].Reserved; is != before[0].Reserved+sharing.GiB {
		t.Errorf("GPU 0 is idle, and its reserve is %v", is)
	}
	b.empty()
}

// Grants and reserves that change at the same time never grant more than there is: a reserve waits for each grant that
// came first.
func TestGrantsWhileReservesChange(t *testing.T) {
	b := newPodBench(t)
	b.still()
	most := b.gpus[0].Memory.SubFloor(b.gpus[0].Reserved)
	stop := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				b.apply(config.Default(), config.Pool{Name: "default", MemoryReserve: most / 2 * sharing.Bytes(i%2)})
			}
		}
	})
	defer changes.Wait()
	defer close(stop)
	granted := 0
	for i := range 100 {
		name := fmt.Sprint("p", i)
		ask := b.ask(name, "c", sharing.ContainerApp, "gpu-memory-gib:60")
		ask.Request.MinLevel = sharing.LevelNone
		if b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}) == nil {
			granted++
		}
		b.Store.Read(func(l store.Reader) {
			for _, v := range l.Overbooked() {
				t.Errorf("GPU %d has %v granted, with a reserve of %v", v.GPU.Index, v.GrantedMemory, v.GPU.Reserved)
			}
		})
		b.gone(name)
	}
	t.Logf("granted %d", granted)
}

// Shared MIG instances come and go in the inventory of a driver that stays attached, with the health of their GPU.
func TestSharedInstancesInPlace(t *testing.T) {
	b := newBench(t)
	b.Runtime = New(b.opt)
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.attach()
	id := b.gpus[0].Ref()
	b.SetHealth(id.UUID, sharing.HealthSuspect, "hot")
	part := b.gpus[0].Clone()
	part.Part = sharing.Instance{Profile: "1g.10gb", ID: 1}
	part.Memory, part.Reserved, part.NVLinks = 10*sharing.GiB, 0, nil
	whole := b.Inventory()
	amend := func(gpus ...sharing.GPU) {
		b.Amend(func(att *gpudriver.Attached) { att.GPUs = append(slices.Clone(b.gpus), gpus...) })
	}
	amend(part)
	b.apply(config.Default(), config.Pool{Name: "default", MemoryReserve: sharing.GiB,
		Overcommit: sharing.Overcommit{Memory: 200}})
	got := slices.DeleteFunc(b.Inventory(), func(g sharing.GPU) bool { return g.Ref() != part.Ref() })
	if len(got) != 1 || got[0].Health != sharing.HealthSuspect || got[0].HealthReason != "hot" ||
		got[0].Reserved != 0 || got[0].Overcommit.Memory != 200 {
		t.Errorf("the instance: %+v", got)
	}
	amend()
	b.apply(config.Default(), config.Pool{Name: "default"})
	if d := cmp.Diff(whole, b.Inventory()); d != "" {
		t.Errorf("without it (-want +got):\n%s", d)
	}
}
