// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// newMPSPods is a node for pods on which MPS works on the first GPU alone.
func newMPSPods(t *testing.T) (*guarded, *fakeMPS) {
	t.Helper()
	b, s, m := newPodBench(t), &seen{}, &fakeMPS{users: map[string]MPSAttachment{}}
	b.opt.Observer, b.opt.Pool, b.opt.MPS = s, byMPS, m
	g := &guarded{bench: b, seen: s}
	g.restartAgent()
	g.onMPS()
	return g, m
}

// onFirst is an ask for the GPU that MPS works on.
func (g *guarded) onFirst(ask sharing.ContainerRequest) sharing.ContainerRequest {
	ask.Request.UUIDs = []sharing.GPUID{g.gpus[0].UUID}
	return ask
}

// A container is created with its daemon's pipe directory and environment, and starts only with the daemon there. The
// daemon knows its grant from before its start until the pod is gone, over containers and a restart of the agent.
func TestMPSHoldsAPod(t *testing.T) {
	g, m := newMPSPods(t)
	c := g.inject(g.onFirst(g.app("p", "gpu-memory-gib:10")))
	id := c.in.Grant
	if c.in.Env["CUDA_MPS_PIPE_DIRECTORY"] != "/namespace/ns" || c.in.Env["LIMIT"] != "10GiB" ||
		c.in.Env["KERF_GRANT"] != id {
		t.Errorf("environment %v", c.in.Env)
	}
	if d := cmp.Diff([]sharing.Mount{{Source: "/namespace/ns", Target: "/namespace/ns"}}, c.in.Mounts); d != "" {
		t.Error(d)
	}
	want := MPSAttachment{ID: id, GPU: g.gpus[0].Ref(), Domain: "namespace/ns", Contained: true,
		Memory:  10 * sharing.GiB,
		Percent: m.all()[id].Percent}
	if d := cmp.Diff(map[string]MPSAttachment{id: want}, m.all()); d != "" || !slices.Equal(m.prepared, []string{id}) ||
		len(m.entered) > 0 {
		t.Errorf("before its start: %s, prepared %v, entered %v", d, m.prepared, m.entered)
	}
	g.restartAgent() // between the making of the container and its hook
	g.onMPS()
	if d := cmp.Diff([]MPSAttachment{want}, g.bench.mpsAttachments()); d != "" {
		t.Errorf("after a restart: %s", d)
	}
	g.bench.AwaitRuntimeSync()
	g.witness(c.seen())

	m.fails = sharing.ErrUnavailable
	if err := c.hooks(); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("without its daemon: %v", err)
	}
	g.active(c.ask, nil)
	m.fails = nil
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]MPSAttachment{want}, m.entered); d != "" {
		t.Error(d)
	}
	if s := g.shown(); s.Backend != sharing.BackendMPS || s.Level != sharing.LevelUserspace {
		t.Errorf("held by %v at level %v, %q", s.Backend, s.Level, s.LevelReason)
	}
	m.fault = "it has died"
	if s := g.shown(); s.Level != sharing.LevelUnknown || s.LevelReason != m.fault {
		t.Errorf("without its daemon: level %v, %q", s.Level, s.LevelReason)
	}
	m.fault = ""
	g.bench.Runtime.MPS = nil
	if s := g.shown(); s.Level != sharing.LevelUnknown {
		t.Errorf("with an agent that does not run MPS: level %v", s.Level)
	}
	g.bench.Runtime.MPS = m
	c.exit()
	g.bench.Reconcile(t.Context())
	if len(m.all()) != 1 {
		t.Error("the daemon was left with the pod still there")
	}
	again := g.run(c.ask)
	again.exit()
	g.gone("p")
	g.bench.Reconcile(t.Context())
	if left := m.all(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// An init container that uses a part of its pod's grant is held to that.
func TestMPSHoldsAPartOfAGrant(t *testing.T) {
	g, m := newMPSPods(t)
	app, init := g.onFirst(g.app("p", "gpu-memory-gib:10")), g.onFirst(g.initc("p", "first", "gpu-memory-gib:4"))
	if err := g.bench.ReservePod(t.Context(), []sharing.ContainerRequest{app, init}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		ask  sharing.ContainerRequest
		size sharing.Bytes
	}{{init, 4 * sharing.GiB}, {app, 10 * sharing.GiB}} {
		c := g.run(step.ask)
		if e := m.entered[len(m.entered)-1]; c.in.Env["LIMIT"] != step.size.String() || e.Memory != step.size {
			t.Errorf("%s: environment %v, daemon %+v", step.ask.Ref.Container, c.in.Env, e)
		}
		c.exit()
		g.bench.Reconcile(t.Context())
	}
	g.gone("p")
}

// If the agent cannot share a daemon's files with containers, the next backend of the list enforces their caps. The
// status says why MPS does not.
func TestMPSOfAnAgentInAContainer(t *testing.T) {
	g, m := newMPSPods(t)
	g.bench.Runtime.NoMPSForPods = "the agent has separate mounts"
	c := g.run(g.onFirst(g.app("p", "gpu-memory-gib:10")))
	if s := g.shown(); s.Backend != sharing.BackendReactive ||
		!strings.Contains(s.LevelReason, "mps: the agent has separate mounts") {
		t.Errorf("held by %v: %q", s.Backend, s.LevelReason)
	}
	if len(m.prepared) > 0 || c.in.Env["CUDA_MPS_PIPE_DIRECTORY"] != "" {
		t.Errorf("prepared %v, environment %v", m.prepared, c.in.Env)
	}
	c.exit()
	g.gone("p")
}

// A process of the container that is on the GPU without MPS has no limit, and is killed.
func TestMPSEscapeFromAContainer(t *testing.T) {
	g, _ := newMPSPods(t)
	c := g.run(g.onFirst(g.app("p", "gpu-memory-gib:4")))
	g.holds(gibs(c.p, 1))
	g.looks(1)
	if s := g.shown(); s.Level != sharing.LevelUnknown ||
		!strings.Contains(s.LevelReason, "does not use the MPS daemon") {
		t.Errorf("with MPS: level %v, %q", s.Level, s.LevelReason)
	}
	g.looks(1)
	g.dead(c.p)
	c.exit()
	g.gone("p")
}

// Pods and processes on one GPU, both held by MPS, have daemons of their own.
func TestMPSKeepsPodsAndProcessesApart(t *testing.T) {
	g, m := newMPSPods(t)
	for _, sharing := range []config.MPSDaemonScope{config.MPSScopeNamespace, config.MPSScopePool} {
		pool := g.bench.settings.Pool()
		pool.MPSDaemonScope = sharing
		g.bench.apply(g.bench.settings.Config(), pool)
		p, a := g.share(4)
		c := g.run(g.onFirst(g.app("p", "gpu-memory-gib:4")))
		all := m.all()
		if x, y := all[string(a.ID)], all[c.in.Grant]; x.Domain == "" || y.Domain == "" || x.Domain == y.Domain ||
			x.Contained || !y.Contained {
			t.Errorf("a process %+v, a pod %+v", x, y)
		}
		c.exit()
		p.end()
		g.gone("p")
	}
}
