// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// MPSAttachment is what a daemon knows of a grant, and who entered.
type MPSAttachment struct {
	ID        string
	GPU       sharing.GPURef
	Domain    string
	Contained bool
	Memory    sharing.Bytes
	PID       int
	Percent   sharing.Percent
}

func mpsAttachment(g backend.Grant, caps sharing.Placement) MPSAttachment {
	key, terms := mps.Of(g, caps)
	return MPSAttachment{ID: g.ID, GPU: sharing.GPURef{UUID: key.GPU}, Domain: key.Domain, Contained: key.Contained,
		Memory: terms.Memory, Percent: terms.Percent}
}

// mpsAttachments are the grants that need a daemon.
func (b *bench) mpsAttachments() (out []MPSAttachment) {
	for _, g := range b.Served() {
		out = append(out, mpsAttachment(g, nil))
	}
	return out
}

// fakeMPS runs no daemons and remembers who uses them.
type fakeMPS struct {
	backend.None
	mu       sync.Mutex
	users    map[string]MPSAttachment
	prepared []string
	entered  []MPSAttachment
	fault    string
	fails    error
	released []string
}

func (f *fakeMPS) Prepare(_ context.Context, g backend.Grant, _ sharing.Placement) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prepared = append(f.prepared, g.ID)
	if _, had := f.users[g.ID]; !had {
		f.users[g.ID] = mpsAttachment(g, nil)
	}
	return nil
}

func (f *fakeMPS) Enforce(_ context.Context, g backend.Grant, caps sharing.Placement) error {
	return f.enter(g, caps, g.PID)
}

func (f *fakeMPS) Resize(_ context.Context, g backend.Grant, caps sharing.Placement) error {
	return f.enter(g, caps, 0)
}

func (f *fakeMPS) enter(g backend.Grant, caps sharing.Placement, pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return f.fails
	}
	l := mpsAttachment(g, caps)
	l.PID = pid
	f.users[l.ID] = l
	f.entered = append(f.entered, l)
	return nil
}

func (f *fakeMPS) Injection(g backend.Grant, caps sharing.Placement) (backend.Injection, error) {
	l := mpsAttachment(g, caps)
	in := backend.Injection{Env: map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/" + l.Domain,
		"LIMIT": l.Memory.String()}}
	if l.Contained {
		in.Mounts = []sharing.Mount{{Source: "/" + l.Domain, Target: "/" + l.Domain}}
	}
	return in, nil
}

func (f *fakeMPS) Release(g backend.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, g.ID)
}

func (f *fakeMPS) Clean(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.released {
		delete(f.users, id)
	}
	f.released = nil
}

func (f *fakeMPS) Check(backend.Grant) backend.Fault { return backend.Fault{Unknown: f.fault} }

func (f *fakeMPS) all() map[string]MPSAttachment {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.users)
}

var byMPS = config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS,
	sharing.BackendReactive}, OverCap: config.OverCapKill}

// newMPS is a node on which MPS works on the first GPU alone.
func newMPS(t *testing.T) (*guarded, *fakeMPS) {
	t.Helper()
	g := newGuarded(t, byMPS)
	m := &fakeMPS{users: map[string]MPSAttachment{}}
	g.bench.opt.MPS, g.bench.Runtime.MPS = m, m
	g.onMPS()
	return g, m
}

func (g *guarded) onMPS() {
	yes := choice.Support{Answer: choice.Supported}
	g.bench.SetLevel(g.gpus[0].Ref(), choice.Report{sharing.BackendMPS: yes, sharing.BackendReactive: yes})
}

// A process gets its daemon's environment, the daemon knows of it as long as its attachment, over a restart too.
func TestMPSHoldsAProcess(t *testing.T) {
	g, m := newMPS(t)
	p := g.tenant()
	req := gib(10)
	req.UUIDs, req.Percent = []sharing.GPUID{g.gpus[0].UUID}, 30
	activated := g.activate(p, "", req)
	if activated.MPS["CUDA_MPS_PIPE_DIRECTORY"] != "/uid/1000" ||
		g.bench.Env(activated)["CUDA_MPS_PIPE_DIRECTORY"] != "/uid/1000" {
		t.Errorf("environment %v", activated.MPS)
	}
	want := MPSAttachment{ID: string(activated.ID), GPU: g.gpus[0].Ref(), Domain: "uid/1000", PID: p.Peer.PID,
		Memory: 10 * sharing.GiB, Percent: 30}
	if d := cmp.Diff(map[string]MPSAttachment{want.ID: want}, m.all()); d != "" {
		t.Error(d)
	}
	if s := g.shown(); s.Backend != sharing.BackendMPS || s.Level != sharing.LevelUserspace {
		t.Errorf("held by %v at level %v", s.Backend, s.Level)
	}
	m.fault = "it has died"
	if s := g.shown(); s.Level != sharing.LevelUnknown || s.LevelReason != m.fault {
		t.Errorf("without its daemon: level %v, %q", s.Level, s.LevelReason)
	}
	m.fault = ""
	g.restartAgent()
	g.bench.Runtime.MPS = m
	want.PID = 0 // no process of the attachment is activating any more
	if d := cmp.Diff([]MPSAttachment{want}, g.bench.mpsAttachments()); d != "" {
		t.Errorf("after a restart: %s", d)
	}
	p.end()
	g.bench.Reconcile(t.Context())
	if left := m.all(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Without its daemon nothing is started, and nothing stays.
func TestMPSThatDoesNotCome(t *testing.T) {
	g, m := newMPS(t)
	m.fails = sharing.ErrUnavailable
	p := g.tenant()
	req := gib(10)
	req.UUIDs = []sharing.GPUID{g.gpus[0].UUID}
	id, err := g.bench.Reserve(t.Context(), p.Peer, "", req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.bench.Activate(t.Context(), p.Peer, id); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("activate: %v", err)
	}
	if got := g.bench.State(t.Context()).Grants; len(got) != 0 {
		t.Errorf("grants left: %+v", got)
	}
}

// One GPU never has shares that MPS holds and others.
func TestMPSIsNotMixed(t *testing.T) {
	g, _ := newMPS(t)
	first := []sharing.GPUID{g.gpus[0].UUID}
	pinned := func(n int) sharing.Request {
		r := gib(n)
		r.UUIDs = first
		return r
	}
	ref := sharing.ContainerRequest{
		Ref:      sharing.ContainerRef{PodUID: "u", Namespace: "n", Pod: "p", Container: "c"},
		Requests: []sharing.ResourceRequest{{Resource: sharing.ResourceMemory, Count: 4}}, Request: pinned(4),
	}
	activate := func(g *guarded, r sharing.Request) lifecycle.Activated {
		p := g.tenant()
		t.Cleanup(func() { p.end(); g.bench.Reconcile(context.Background()) })
		return g.activate(p, "", r)
	}
	root := g.tenant().Peer
	root.UID = 0
	activate(g, pinned(10))
	activate(g, pinned(10))
	g.bench.Runtime.NoMPSForPods = "the agent is in a container"
	_, err := g.bench.ReserveForContainer(t.Context(), root, "", pinned(4), 0)
	if noFit := new(allocator.NoFit); !errors.As(err, &noFit) || !errors.Is(err, sharing.ErrExhausted) ||
		!strings.Contains(err.Error(), "runs MPS for other grants") {
		t.Errorf("a container on a GPU that runs MPS: %v", err)
	}
	if _, err := g.bench.Inject(t.Context(), ref, "id"); err == nil ||
		!strings.Contains(err.Error(), "runs MPS for other grants") {
		t.Errorf("a pod on a GPU that runs MPS: %v", err)
	}
	two := gib(4)
	two.GPUs, two.UUIDs = 2, []sharing.GPUID{g.gpus[0].UUID, g.gpus[1].UUID}
	if _, err := g.bench.Reserve(t.Context(), g.tenant().Peer, "", two); err == nil ||
		!strings.Contains(err.Error(), "runs MPS for other grants") {
		t.Errorf("a grant over two GPUs, one of which runs MPS: %v", err)
	}
}

// The other way round, what MPS does not hold keeps it away, and the next of the list holds.
func TestMPSStaysAway(t *testing.T) {
	g, _ := newMPS(t)
	req := gib(4)
	req.UUIDs = []sharing.GPUID{g.gpus[0].UUID}
	root := g.tenant().Peer
	root.UID = 0
	id, err := g.bench.ReserveForContainer(t.Context(), root, "", req, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b := backendIn(g, id); b != sharing.BackendReactive {
		t.Errorf("the container is held by %v", b)
	}
	if s := g.shown(); !strings.Contains(s.LevelReason, "/dev/shm") {
		t.Errorf("why MPS does not hold the container: %q", s.LevelReason)
	}
	_, a := g.share(4)
	if b := backendIn(g, a.ID); b != sharing.BackendReactive {
		t.Errorf("with a reactive share: enforced by %v", b)
	}
}

func backendIn(g *guarded, id ledger.GrantID) sharing.Backend {
	all := g.bench.State(g.t.Context()).Grants
	return all[slices.IndexFunc(all, func(s status.Grant) bool { return s.ID == id })].Backend
}

// A process of the grant that is on the GPU and no client of MPS has no limit. Status shows it, and it counts as over
// its cap, whatever it uses. So does the sum of clients, each of which has the limit for itself.
func TestMPSIsWatched(t *testing.T) {
	client := func(p *tenant, n int) gpudriver.ProcessUse {
		u := gibs(p, n)
		u.MPS = true
		return u
	}
	g, _ := newMPS(t)
	p, _ := g.share(4)
	g.holds(client(p, 3))
	g.looks(3)
	g.lives(p)
	if s := g.shown(); s.Level != sharing.LevelUserspace {
		t.Errorf("a client: level %v, %s", s.Level, s.LevelReason)
	}
	g.holds(client(p, 5))
	g.looks(3)
	g.dead(p)
}

// With several domains on a GPU, a program without its pipe directory gets a context, and no limit. It is ended, even
// if the pool's policy is to warn about overuse.
func TestMPSEscape(t *testing.T) {
	for _, policy := range []config.OverCap{config.OverCapKill, config.OverCapWarn, config.OverCapDefault} {
		t.Run(policy.String(), func(t *testing.T) {
			g, _ := newMPS(t)
			pool := byMPS
			pool.OverCap = policy
			g.bench.apply(config.Default(), pool)
			p, _ := g.share(4)
			other, _ := g.share(4)
			client := gibs(other, 1)
			client.MPS = true
			g.holds(gibs(p, 1), client)
			g.looks(1)
			g.lives(p)
			if s := g.shown(); s.Level != sharing.LevelUnknown ||
				!strings.Contains(s.LevelReason, "does not use the MPS daemon") {
				t.Errorf("with MPS: level %v, %q", s.Level, s.LevelReason)
			}
			g.looks(1)
			g.dead(p)
			g.holds(client)
			g.looks(3)
			g.lives(other)
		})
	}
}
