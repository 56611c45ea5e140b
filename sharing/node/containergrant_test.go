// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// A container that is no pod's: root grants, the hook activates by the grant's id, the cgroup ends it.
func TestGrantForContainer(t *testing.T) {
	b := newPodBench(t)
	b.start()
	owner := b.tenant()
	_, err := b.ReserveForContainer(t.Context(), owner.Peer, "", gib(10), 0)
	refused(t, err, sharing.ErrDenied, "root")
	root := owner.Peer
	root.UID = 0
	req := sharing.Request{Memory: 10 * sharing.GiB, Percent: 25, GPUs: 1}
	id, err := b.ReserveForContainer(t.Context(), root, "run", req, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Activate(t.Context(), root, id)
	refused(t, err, sharing.ErrInvalid, "hook")
	in, err := b.InjectionOf(id)
	if err != nil || len(in.Requests) != 2 || in.Placement[0].Memory != 10*sharing.GiB {
		t.Fatalf("%+v %v", in, err)
	}
	c := (&container{b: b, ask: sharing.ContainerRequest{Requests: in.Requests}, id: b.newID(), in: in}).make()
	call := sharing.HookCall{ContainerID: c.id, PID: c.p.PID, Grant: string(id), Amount: "gpu-memory-gib:11"}
	refused(t, b.ActivateContainer(t.Context(), call), sharing.ErrInvalid, "gpu-memory-gib:11")
	for _, ask := range []string{"", "gpu-memory-gib:10", "gpu-percent:25", ""} {
		call.Amount = ask
		if err := b.ActivateContainer(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	c.limits(map[sharing.GPURef]sharing.Bytes{in.Placement[0].GPU: 10 * sharing.GiB})
	// It is taken: another container with its id gets nothing.
	d := (&container{b: b, id: b.newID()}).make()
	refused(t, b.ActivateContainer(t.Context(), sharing.HookCall{ContainerID: d.id, PID: d.p.PID, Grant: string(id)}),
		sharing.ErrNotFound)
	d.remove()
	if owner := b.Handles.Owner(id); owner != nil {
		t.Errorf("the grant is the container's now, and its process is %+v", owner)
	}
	owner.end()
	b.Reconcile(t.Context())
	if g, ok := b.Grant(id); !ok || g.Active == nil || g.Active.ContainerID != c.id {
		t.Errorf("grant %+v", g)
	}
	c.exit()
	b.eventually("the grant ends with the cgroup", func() bool { _, ok := b.Grant(id); return !ok })
	if err := c.group.Remove(); err != nil {
		t.Error(err)
	}
	b.gone()
}

// A grant for a container that never comes ends with the process that reserved it, or after its time.
func TestAGrantForAContainerEnds(t *testing.T) {
	b := newPodBench(t)
	b.still()
	grant := func(hold time.Duration) (*tenant, string) {
		t.Helper()
		p := b.tenant()
		p.UID = 0
		id, err := b.ReserveForContainer(t.Context(), p.Peer, "", gib(10), hold)
		if err != nil {
			t.Fatal(err)
		}
		return p, string(id)
	}
	left := func() int { b.Reconcile(t.Context()); return len(b.State(t.Context()).Grants) }

	p, id := grant(0)
	if left() != 1 {
		t.Error("ended while its process lives")
	}
	// A start that failed changes nothing of it, and another container may try.
	b.caps.set(func() { b.caps.fail = sharing.ErrUnavailable })
	first := (&container{b: b, id: b.newID()}).make()
	refused(t, b.ActivateContainer(t.Context(), sharing.HookCall{ContainerID: first.id, PID: first.p.PID, Grant: id}),
		sharing.ErrUnavailable)
	first.remove()
	b.caps.set(func() { b.caps.fail = nil })
	if left() != 1 {
		t.Error("ended by a start that failed")
	}
	second := (&container{b: b, id: b.newID()}).make()
	for range 2 {
		if err := b.ActivateContainer(t.Context(), sharing.HookCall{ContainerID: second.id, PID: second.p.PID,
			Grant: id}); err != nil {
			t.Fatal(err)
		}
	}
	if g := b.State(t.Context()).Grants[0]; g.Active.ContainerID != second.id {
		t.Errorf("attachment %+v", g.Active)
	}
	second.remove()
	if left() != 0 {
		t.Error("outlives its container")
	}

	p.end()
	p, id = grant(0)
	b.caps.set(func() { b.caps.fail = sharing.ErrUnavailable })
	third := (&container{b: b, id: b.newID()}).make()
	refused(t, b.ActivateContainer(t.Context(), sharing.HookCall{ContainerID: third.id, PID: third.p.PID, Grant: id}),
		sharing.ErrUnavailable)
	third.remove()
	b.caps.set(func() { b.caps.fail = nil })
	p.end()
	if left() != 0 {
		t.Error("a grant whose container failed to start outlives its process")
	}

	// It was not active when the agent ended, so its grant ended with the agent. The grant is not created again: the
	// container may never start.
	p, id = grant(0)
	in, err := b.InjectionOf(ledger.GrantID(id))
	if err != nil {
		t.Fatal(err)
	}
	b.still()
	fourth := &container{b: b, ask: sharing.ContainerRequest{Requests: in.Requests}, id: b.newID(), in: in}
	seen := fourth.seen()
	seen.Grant = id
	b.witness(seen)
	if left() != 0 {
		t.Error("booked for a container that does not run")
	}
	p.end()

	p, _ = grant(time.Hour)
	p.end()
	if left() != 1 {
		t.Error("ended before its time")
	}
	_ = b.Store.UpdateLater(func(l *ledger.Ledger) error {
		for _, g := range l.Grants() {
			l.SetTerms(g.ID, func(t *ledger.Terms) { t.Until = time.Now().Add(-time.Second) })
		}
		return nil
	})
	if left() != 0 {
		t.Error("outlives its time")
	}
	b.gone()
}

// A container of a grant is found again as pods' are: by the record, or by its annotation and its hook.
func TestAContainerOfAGrantOverARestart(t *testing.T) {
	odd := sharing.Request{Memory: 100 * sharing.MiB, GPUs: 1} // an amount that no ask names
	for name, tc := range map[string]struct {
		req  sharing.Request
		lost bool
	}{
		"record kept": {gib(10), false}, "record lost": {gib(10), true}, "record kept, no asks": {odd, false},
		"record lost, no asks": {odd, true},
	} {
		t.Run(name, func(t *testing.T) {
			req, lost := tc.req, tc.lost
			b := newPodBench(t)
			b.still()
			owner := b.tenant()
			owner.UID = 0
			id, err := b.ReserveForContainer(t.Context(), owner.Peer, "run", req, 0)
			if err != nil {
				t.Fatal(err)
			}
			in, err := b.InjectionOf(id)
			if err != nil {
				t.Fatal(err)
			}
			c := (&container{b: b, ask: sharing.ContainerRequest{Requests: in.Requests}, id: b.newID(), in: in}).make()
			if err := b.ActivateContainer(t.Context(), sharing.HookCall{ContainerID: c.id, PID: c.p.PID,
				Grant: string(id)}); err != nil {
				t.Fatal(err)
			}
			owner.end()
			if lost {
				b.lose()
			} else {
				b.still()
			}
			seen := c.seen()
			seen.Grant = string(id)
			b.witness(seen)
			g, ok := b.Grant(id)
			if !ok || g.Active == nil || g.Active.ContainerID != c.id || g.Placement[0].Memory != req.Memory {
				t.Fatalf("%+v; alarm %q", g, b.alarm())
			}
			if a := b.alarm(); a != "" {
				t.Errorf("alarm %q", a)
			}
			if err := b.ActivateContainer(t.Context(), sharing.HookCall{ContainerID: c.id, PID: c.p.PID,
				Grant: string(id)}); err != nil {
				t.Error(err)
			}
			c.limits(map[sharing.GPURef]sharing.Bytes{in.Placement[0].GPU: req.Memory})
			c.remove()
			b.Reconcile(t.Context())
			b.gone()
		})
	}
}
