// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package applied

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// node is a node with users and an inventory, as the runtime has them.
type node struct {
	*Settings
	users  map[sharing.GPUID][]string // pods
	known  bool
	driver []sharing.GPU // as the driver shows them
	offers []sharing.GPU // of which grants can be given
	took   int           // how often the inventory was taken
	woken  int
}

func newNode(pool config.Pool, gpus ...sharing.GPU) *node {
	n := &node{users: map[sharing.GPUID][]string{}, known: true, driver: gpus}
	n.Settings = New(slog.New(slog.DiscardHandler), n, func() { n.woken++ }, config.Default(), pool)
	return n
}

// View implements Node.
func (n *node) View(f func([]ledger.Grant, bool) bool) {
	if f(n.grants(), n.known) {
		n.offers, n.took = n.Allocatable(n.driver), n.took+1
	}
}

// Known implements Node.
func (n *node) Known() bool { return n.known }

func (n *node) grants() (out []ledger.Grant) {
	for gpu, pods := range n.users {
		for _, pod := range pods {
			c := ledger.Reservation{Owner: ledger.Owner{PodUID: pod, Namespace: "ns", PodName: pod},
				Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: gpu}}}}
			out = append(out, ledger.Grant{Reservation: c})
		}
	}
	return out
}

func (n *node) of(i int) config.GPUSettings { return n.Of(n.driver[i], n.grants()) }

func gpus(n int) []sharing.GPU {
	var out []sharing.GPU
	for i := range n {
		out = append(out, sharing.GPU{UUID: sharing.GPUID(fmt.Sprint("GPU-", i)), Index: i, Memory: 8 * sharing.GiB,
			Reserved: sharing.GiB})
	}
	return out
}

func rules(own ...config.GPUSettings) config.Pool {
	p := config.Pool{Name: "a"}
	for i, s := range own {
		p.GPURules = append(p.GPURules, config.GPURule{Indexes: []int{i}, Settings: s})
	}
	return p
}

func ids(gpus []sharing.GPU) (out []string) {
	for _, g := range gpus {
		out = append(out, string(g.UUID))
	}
	return out
}

// Changed amounts reach the inventory at once, and other changes leave it alone. A restart finds what the GPUs had.
func TestSettings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), File)
	n := newNode(config.Pool{}, gpus(2)...)
	n.Load(path, "boot")
	n.SetInventory(n.driver)
	n.offers, n.took = n.Allocatable(n.driver), 0
	held := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver, sharing.BackendMPS),
		MinLevel: sharing.LevelUserspace, PowerLimitWatts: 300}
	apply := func(took int, own ...config.GPUSettings) {
		t.Helper()
		n.took = 0
		n.Apply(config.Default(), rules(own...), Source{File: "f"})
		if n.took != took {
			t.Errorf("the inventory was taken %d times, want %d", n.took, took)
		}
	}
	if apply(0, held); n.Has("GPU-0") != held || n.Has("GPU-1") != (config.GPUSettings{}) ||
		!n.Lists(sharing.BackendMPS) || n.Source().File != "f" {
		t.Errorf("GPU 0 has %+v, GPU 1 %+v", n.Has("GPU-0"), n.Has("GPU-1"))
	}
	over := config.GPUSettings{Overcommit: sharing.Overcommit{Compute: 200}}
	if apply(1, over); n.offers[0].BookablePercent() != 200 || n.offers[1].BookablePercent() != 100 {
		t.Errorf("overcommitted: %+v", n.offers)
	}
	apply(1, config.GPUSettings{MemoryReserve: 2 * sharing.GiB}, config.GPUSettings{Excluded: true})
	if len(n.offers) != 1 || n.offers[0].Reserved != 3*sharing.GiB || n.driver[0].Reserved != sharing.GiB {
		t.Errorf("a reserve, and a GPU that is left to others: %+v", n.offers)
	}
	if !slices.Equal(ids(n.Excluded()), []string{"GPU-1"}) || !slices.Equal(ids(n.Used()), []string{"GPU-0"}) {
		t.Errorf("excluded %v, used %v", n.Excluded(), n.Used())
	}
	part := sharing.GPU{UUID: "GPU-0", Part: sharing.Instance{Profile: "1g.10gb", ID: 1, Size: 1}, Memory: sharing.GiB}
	if got := n.Allocatable([]sharing.GPU{part}); len(got) != 1 || got[0].Reserved != 0 {
		t.Errorf("a shared MIG instance: %+v", got)
	}
	for boot, want := range map[string]map[sharing.GPUID]config.GPUSettings{"boot": n.has, "another boot": {}} {
		again := newNode(config.Pool{})
		again.Load(path, boot)
		if diff := cmp.Diff(want, again.has); diff != "" {
			t.Errorf("after a restart in %s (-want +got):\n%s", boot, diff)
		}
	}
	process := ledger.Grant{Reservation: ledger.Reservation{ID: "k-1", Placement: sharing.Placement{{GPU: part.Ref()},
		{GPU: sharing.GPURef{UUID: "GPU-1"}}}}}
	if got := users([]ledger.Grant{process, process}); !slices.Equal(got["GPU-0"], []string{"grant k-1"}) ||
		len(got) != 2 {
		t.Errorf("users: %v", got)
	}
	n.woken = 0
	if n.Settle(); n.woken != 0 || n.took != 1 {
		t.Error("a look without a change woke others")
	}
}

// Before all users are known, and until a GPU is idle, new grants get its backends of before. A MIG instance follows
// its GPU.
func TestOf(t *testing.T) {
	t.Parallel()
	mps := config.GPUSettings{Backends: config.BackendListOf(sharing.BackendDriver, sharing.BackendMPS),
		MinLevel: sharing.LevelUserspace}
	n := newNode(rules(mps), gpus(1)...)
	n.SetInventory(n.driver)
	n.known = false
	n.Apply(config.Default(), rules(config.GPUSettings{Excluded: true, MaxSharesPerGPU: 3}), Source{})
	part := sharing.GPU{UUID: "GPU-0", Part: sharing.Instance{Profile: "1g.10gb", ID: 1, Size: 1}, Index: 0}
	if got := n.of(0); got.Backends != mps.Backends || got.MinLevel != mps.MinLevel || !got.Excluded ||
		got.MaxSharesPerGPU != 3 {
		t.Errorf("before the users are known: %+v", got)
	}
	n.users, n.known = map[sharing.GPUID][]string{"GPU-0": {"a"}}, true
	if got := n.Of(part, n.grants()); got.Backends != mps.Backends {
		t.Errorf("a MIG instance: %+v", got)
	}
	n.users = nil
	if got := n.of(0); got.Backends != "" || got.MinLevel != sharing.LevelUnknown || !got.Excluded {
		t.Errorf("of an idle GPU: %+v", got)
	}
	if got := n.Of(sharing.GPU{UUID: "unknown", Index: 9}, n.grants()); got != (config.GPUSettings{}) {
		t.Errorf("of an unknown GPU: %+v", got)
	}
}

// model is what one GPU must have, computed without a plan: what the pool said when it was idle last.
type model struct{ backends, rest config.GPUSettings }

// Configs follow each other, grants come and go, and the agent restarts at any time. A GPU in use has the settings from
// when its first user came. An idle one has what the pool says, and the awaited grants are named.
func TestSettingsRandom(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 19))
	one := func() config.GPUSettings {
		return config.GPUSettings{
			Excluded: rnd.IntN(5) == 0, MemoryReserve: sharing.Bytes(rnd.IntN(3)) * sharing.GiB,
			PowerLimitWatts: 100 * rnd.IntN(2),
			// #nosec G115 -- small
			Backends: []config.BackendList{"", "driver,mps", "driver,libkerf"}[rnd.IntN(3)],
			MinLevel: sharing.Level(rnd.IntN(3)),
		}
	}
	for round := range 40 {
		path := filepath.Join(t.TempDir(), fmt.Sprint(round))
		n := newNode(rules(one(), one(), one()), gpus(3)...)
		n.Load(path, "boot")
		n.SetInventory(n.driver)
		want := map[int]model{}
		idle := func(i int) bool { return len(n.users[n.driver[i].UUID]) == 0 }
		idled := func() {
			for i, g := range n.driver {
				if s := n.Pool().Of(g); idle(i) {
					want[i] = model{s, s}
				}
			}
		}
		idled()
		for step := range 40 {
			i := rnd.IntN(3)
			id := n.driver[i].UUID
			switch rnd.IntN(6) {
			case 0:
				n.Apply(config.Default(), rules(one(), one(), one()), Source{})
				idled()
				n.settled(t, step)
			case 1, 2:
				if s := n.of(i); !s.Excluded { // an excluded GPU gives nothing
					if idle(i) { // its backends are chosen with the first grant, the rest when it is settled
						want[i] = model{s, want[i].rest}
					}
					n.users[id] = append(n.users[id], fmt.Sprintf("p%02d", step))
				}
			case 3:
				if !idle(i) {
					n.users[id] = n.users[id][1:]
				}
			case 4:
				n.Settle()
				idled()
				n.settled(t, step)
			case 5:
				n.save() // as each change of the runtime's leads to
				was := n
				n = newNode(was.Pool(), was.driver...)
				n.users = was.users
				n.Load(path, "boot")
				n.SetInventory(n.driver)
				idled()
			}
			n.check(t, step, want)
		}
	}
}

func (n *node) check(t *testing.T, step int, want map[int]model) {
	t.Helper()
	for i, g := range n.driver {
		is, pool, users := n.Has(g.UUID), n.Pool().Of(g), n.users[g.UUID]
		m := want[i]
		if is.Excluded != m.rest.Excluded || is.MemoryReserve != m.rest.MemoryReserve ||
			is.PowerLimitWatts != m.rest.PowerLimitWatts {
			t.Fatalf("step %d: GPU %d has %+v, want %+v", step, i, is, m.rest)
		}
		if len(users) > 0 && (is.Backends != m.backends.Backends || is.MinLevel != m.backends.MinLevel) {
			t.Fatalf("step %d: GPU %d in use has %+v, and had %+v when its first user came", step, i, is, m.backends)
		}
		next, known := pool, maps.Clone(n.has)
		if len(users) > 0 {
			next.Backends, next.MinLevel = m.backends.Backends, m.backends.MinLevel
		}
		if got := n.of(i); got != next {
			t.Fatalf("step %d: new grants on GPU %d get %+v, want %+v", step, i, got, next)
		}
		n.has = known // the read alone changes nothing here
	}
}

// A GPU in use keeps its front end, for new grants too and over a restart. An idle GPU changes it at once.
func TestFrontEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), File)
	n := newNode(config.Pool{}, gpus(2)...)
	n.Load(path, "boot")
	n.SetInventory(n.driver)
	n.users["GPU-0"] = []string{"a"}
	claims := config.Pool{FrontEnd: sharing.FrontEndDRA}
	check := func(n *node, first, second sharing.FrontEnd) {
		t.Helper()
		if n.Has("GPU-0").FrontEnd != first || n.of(0).FrontEnd != first || n.Has("GPU-1").FrontEnd != second ||
			n.of(1).FrontEnd != second {
			t.Errorf("GPU 0 has %v, GPU 1 %v", n.Has("GPU-0").FrontEnd, n.Has("GPU-1").FrontEnd)
		}
	}
	n.Apply(config.Default(), claims, Source{})
	check(n, sharing.FrontEndDevicePlugin, sharing.FrontEndDRA)
	w := n.Waiting()
	if len(w) != 1 || !slices.Equal(w[0].What, []string{"frontend devicePlugin -> dra"}) ||
		!slices.Equal(w[0].For, []string{"ns/a"}) {
		t.Errorf("waiting: %+v", w)
	}
	again := newNode(config.Pool{}, n.driver...)
	again.known = false // it knows no grant yet
	again.Load(path, "boot")
	again.SetInventory(again.driver)
	again.Apply(config.Default(), claims, Source{})
	check(again, sharing.FrontEndDevicePlugin, sharing.FrontEndDRA)
	again.known = true
	again.Settle()
	check(again, sharing.FrontEndDRA, sharing.FrontEndDRA)
}

func names(pods []string) (out []string) {
	for _, pod := range pods {
		out = append(out, "ns/"+pod)
	}
	return out
}

// settled requires that idle GPUs are as the pool says, and that the users of the others are named.
func (n *node) settled(t *testing.T, step int) {
	t.Helper()
	for i, g := range n.driver {
		users := n.users[g.UUID]
		w := slices.IndexFunc(n.Waiting(), func(s change.Step) bool { return s.GPU == g.UUID })
		if waits := len(users) > 0 && n.Has(g.UUID) != n.Pool().Of(g); waits != (w >= 0) || waits &&
			!slices.Equal(n.Waiting()[w].For, names(users)) {
			t.Fatalf("step %d: GPU %d with %q waits as %+v", step, i, users, n.Waiting())
		}
		if len(users) == 0 && n.Has(g.UUID) != n.Pool().Of(g) {
			t.Fatalf("step %d: idle GPU %d has %+v, and the pool says %+v", step, i, n.Has(g.UUID), n.Pool().Of(g))
		}
	}
}
