// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/record"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// newPodBench is newBench with cgroups for containers, which the container runtime owns, next to the runtime's cgroups.
func newPodBench(t testing.TB) *bench {
	t.Helper()
	b := newBench(t)
	b.kubepods = b.opt.Parent + "/kubepods-test"
	b.opt.Parent += "/kerf"
	return b
}

// ask is what a container of a pod was admitted with.
func (b *bench) ask(pod, container string, kind sharing.ContainerKind, amounts ...string) sharing.ContainerRequest {
	b.t.Helper()
	var asks []sharing.ResourceRequest
	for _, s := range amounts {
		a, err := sharing.ParseResourceRequest(s)
		if err != nil {
			b.t.Fatal(err)
		}
		asks = append(asks, a)
	}
	sharing.SortResourceRequests(asks)
	req, ok, err := sharing.RequestFromResources(sharing.Limits(asks), nil, container)
	if err != nil || !ok {
		b.t.Fatalf("request of %v: %v %v", asks, ok, err)
	}
	return sharing.ContainerRequest{
		Ref:  sharing.ContainerRef{PodUID: "uid-" + pod, Namespace: "ns", Pod: pod, Container: container},
		Kind: kind, Requests: asks, Request: req,
	}
}

func (b *bench) app(pod string, amounts ...string) sharing.ContainerRequest {
	b.t.Helper()
	return b.ask(pod, "main", sharing.ContainerApp, amounts...)
}

func (b *bench) initc(pod, name string, amounts ...string) sharing.ContainerRequest {
	b.t.Helper()
	return b.ask(pod, name, sharing.ContainerInit, amounts...)
}

// container is one container instance as a container runtime has it. First it is injected; from made on it has a cgroup
// that bears its id and a first process in it.
type container struct {
	b     *bench
	ask   sharing.ContainerRequest
	id    string
	in    sharing.Injection
	p     *tenant
	group cgroup.Group
}

// newID is a container id as runtimes make them.
func (b *bench) newID() string {
	b.ids++
	return fmt.Sprintf("%064x", b.ids)
}

// inject is CreateContainer, and fails the test if it is refused.
func (b *bench) inject(ask sharing.ContainerRequest) *container {
	b.t.Helper()
	c := &container{b: b, ask: ask, id: b.newID()}
	in, err := b.Inject(b.t.Context(), ask, c.id)
	for began := time.Now(); errors.Is(err, lifecycle.ErrBusy) && time.Since(began) < time.Minute; {
		in, err = b.Inject(b.t.Context(), ask, c.id) // it has waited
	}
	if c.in = in; err != nil {
		b.t.Fatal(err)
	}
	return c
}

// make is what the OCI runtime does before it runs the hooks.
func (c *container) make() *container {
	c.b.t.Helper()
	if c.p != nil {
		return c
	}
	var err error
	if c.group, err = c.b.opt.Cgroups.Create(path.Join(c.b.kubepods, c.id)); err != nil {
		c.b.t.Fatal(err)
	}
	c.p = c.b.tenant()
	if err := c.group.Add(c.p.PID); err != nil {
		c.b.t.Fatal(err)
	}
	return c
}

// calls are what the hooks of the container ask, one after the other: the guard's and one for each ask. Before
// they come, the container runtime has said that it made the container with its grant, if it did.
func (c *container) calls() []sharing.HookCall {
	if c.in.Annotation != "" {
		c.b.ContainerMade(c.id, c.in.Annotation)
	}
	out := []sharing.HookCall{{ContainerID: c.id, PID: c.p.PID}}
	for _, a := range c.ask.Requests {
		out = append(out, sharing.HookCall{ContainerID: c.id, PID: c.p.PID, Amount: a.String()})
	}
	return out
}

// hooks runs all hooks of the container. As the real ones do, they ask again while the attachment before theirs is
// ending.
func (c *container) hooks() error {
	c.make()
	for _, call := range c.calls() {
		err := c.b.ActivateContainer(c.b.t.Context(), call)
		for began := time.Now(); errors.Is(err, lifecycle.ErrBusy) &&
			time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
			err = c.b.ActivateContainer(c.b.t.Context(), call)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run is a container from its creation to its start, and fails the test if any of it is refused.
func (b *bench) run(ask sharing.ContainerRequest) *container {
	b.t.Helper()
	c := b.inject(ask)
	if err := c.hooks(); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// exit ends the container's process; the cgroup stays, empty, until the container runtime removes it.
func (c *container) exit() {
	c.b.t.Helper()
	c.p.end()
	c.b.eventually("the cgroup is empty", func() bool {
		busy, err := c.group.Populated()
		return !busy && (err == nil || errors.Is(err, sharing.ErrNotFound))
	})
}

// remove ends the container, cgroup and all. The driver's limits go with the cgroup.
func (c *container) remove() {
	c.b.t.Helper()
	c.exit()
	if err := c.group.Remove(); err != nil {
		c.b.t.Fatal(err)
	}
	c.b.caps.set(func() { delete(c.b.caps.limits, c.group.Dir) })
}

// seen is the container as its runtime tells of it.
func (c *container) seen() sharing.Seen {
	s := sharing.Seen{ID: c.id, Ref: c.ask.Ref, Annotation: c.in.Annotation, CDINames: []string{sharing.HookDevice}}
	for _, a := range c.ask.Requests {
		s.CDINames = append(s.CDINames, a.Device())
	}
	if c.p != nil {
		s.PID, s.Running = c.p.PID, true
	}
	return s
}

// limits requires what the driver holds for the container: exactly these, and the least on all other GPUs.
func (c *container) limits(want map[sharing.GPURef]sharing.Bytes) {
	c.b.t.Helper()
	for _, g := range c.b.gpus {
		w, own := want[g.Ref()]
		if !own {
			w = least
		}
		if limit, _, err := c.b.caps.Read(c.b.t.Context(), c.group.Dir, g.Ref()); err != nil || limit != w {
			c.b.t.Errorf("container %s on %s: limit %v (%v), want %v", c.ask.Ref, g.Ref(), limit, err, w)
		}
	}
}

// grant is the container's grant, nil if it has none.
func (b *bench) grant(ask sharing.ContainerRequest) *ledger.Grant {
	var g ledger.Grant
	ok := false
	b.Store.Read(func(l store.Reader) { g, ok = l.ByContainer(ask.Ref.PodUID, ask.Ref.Container) })
	if !ok {
		return nil
	}
	return &g
}

// active requires that the container's grant exists, and has an attachment of this container or, with nil, none.
func (b *bench) active(ask sharing.ContainerRequest, c *container) ledger.Grant {
	b.t.Helper()
	g := b.grant(ask)
	switch {
	case g == nil:
		b.t.Fatalf("container %s has no grant", ask.Ref)
	case c == nil && g.Active != nil:
		b.t.Fatalf("grant of %s is in use by %+v", ask.Ref, g.Active)
	case c != nil && (g.Active == nil || g.Active.ContainerID != c.id || g.Active.Cgroup != c.group.Dir ||
		g.Active.Container != c.ask.Ref.Container):
		b.t.Fatalf("grant of %s has attachment %+v, want that of container %s", ask.Ref, g.Active, c.id)
	}
	return *g
}

// check requires that the ledger is consistent.
func (b *bench) check() {
	b.t.Helper()
	b.consistent()
	b.Store.Read(func(l store.Reader) {
		if b.Handles.Len() != len(l.Grants()) {
			b.t.Errorf("%d handles for %d grants", b.Handles.Len(), len(l.Grants()))
		}
	})
}

// gone requires that nothing is left after the pods are forgotten.
func (b *bench) gone(pods ...string) {
	b.t.Helper()
	for _, p := range pods {
		b.PodRemoved("uid-" + p)
	}
	b.eventually("no grant is left", func() bool { b.Reconcile(b.t.Context()); return len(b.PodGrants()) == 0 })
	b.empty()
	b.consistent()
	if left := b.Store.Grants(); len(left) > 0 { // no container is without its grant
		b.t.Errorf("left: %+v", left)
	}
}

// recorded is the record on disk.
func (b *bench) recorded() []record.Grant {
	b.t.Helper()
	data, err := os.ReadFile(b.opt.RecordPath)
	if err != nil {
		b.t.Fatal(err)
	}
	rec, err := record.Decode(data)
	if err != nil {
		b.t.Fatal(err)
	}
	return rec.Grants
}

// still is a runtime without its loops: nothing happens but what the test calls.
func (b *bench) still() {
	b.t.Helper()
	b.Runtime = New(b.opt)
	if err := b.Restore(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.attach()
}

// crash does what a SIGKILL at the failpoint would leave: nothing after it runs, and nothing is undone. Disk, cgroups
// and driver remain. A new agent then starts on these.
func (b *bench) crash(point string, do func()) {
	b.t.Helper()
	if !b.crashes(point, do) {
		b.t.Fatalf("failpoint %s was not met", point)
	}
}

// crashes is crash where do may end before it meets the failpoint; it reports whether it met it.
func (b *bench) crashes(point string, do func()) (met bool) {
	b.t.Helper()
	set, err := failpoint.Parse(point+"=exit", failpoint.Actions{Exit: func(string) { met = true; runtime.Goexit() }})
	if err != nil {
		b.t.Fatal(err)
	}
	b.Runtime.Failpoints = set
	var wg sync.WaitGroup
	wg.Go(do)
	wg.Wait()
	b.Runtime.Failpoints = nil
	if met {
		b.still()
	}
	return met
}

// refused requires an error of the vocabulary whose text has all the words.
func refused(t testing.TB, err, want error, words ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
		return
	}
	// The hook tries again on ErrUnavailable, so a final refusal must not be one.
	if !errors.Is(want, sharing.ErrUnavailable) && errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("%v is unavailable, and so not final", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not tell of %q", err, w)
		}
	}
}

func containersOf(refs []sharing.ContainerRef) []string {
	var out []string
	for _, r := range refs {
		out = append(out, r.Pod+"/"+r.Container)
	}
	slices.Sort(out)
	return out
}
