// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// The answers to kerf-hook. A final refusal fails the start at once. Any other lets the hook wait.
func TestTheHookIsRefused(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.inject(b.app("p", "gpu-memory-gib:10", "gpu-percent:25")).make()
	stranger := b.tenant()
	dead := b.tenant()
	dead.end()
	other := b.inject(b.app("q", "gpu-memory-gib:10")).make()
	call := func(change func(*sharing.HookCall)) sharing.HookCall {
		out := sharing.HookCall{ContainerID: c.id, PID: c.p.PID, Amount: "gpu-memory-gib:10"}
		change(&out)
		return out
	}
	tests := map[string]struct {
		call  sharing.HookCall
		want  error
		words []string
	}{
		"another amount": {call(func(h *sharing.HookCall) { h.Amount = "gpu-memory-gib:11" }),
			sharing.ErrInvalid, []string{"gpu-memory-gib:11", "gpu-memory-gib:10"}},
		"another resource": {call(func(h *sharing.HookCall) { h.Amount = "gpu:1" }),
			sharing.ErrInvalid, []string{"gpu:1"}},
		"no amount at all": {call(func(h *sharing.HookCall) { h.Amount = "x" }), sharing.ErrInvalid,
			nil},
		"a process elsewhere": {call(func(h *sharing.HookCall) { h.PID = stranger.PID }),
			sharing.ErrStale, []string{"not the container's"}},
		"another container's process": {call(func(h *sharing.HookCall) { h.PID = other.p.PID }),
			sharing.ErrStale, []string{"not the container's"}},
		"a dead process": {call(func(h *sharing.HookCall) { h.PID = dead.PID }),
			sharing.ErrNotFound, nil},
		"no process": {call(func(h *sharing.HookCall) { h.PID = 0 }), sharing.ErrInvalid,
			nil},
		"a short id": {call(func(h *sharing.HookCall) { h.ContainerID = c.id[57:] }),
			sharing.ErrInvalid, []string{"shorter"}},
		"no id": {call(func(h *sharing.HookCall) { h.ContainerID = "" }),
			sharing.ErrInvalid, nil},
		"a part of the id, so of no container": {call(func(h *sharing.HookCall) { h.ContainerID = c.id[:60] }),
			sharing.ErrUnavailable, []string{"not yet heard"}},
		"a grant by name": {sharing.HookCall{ContainerID: strings.Repeat("0", 60), PID: c.p.PID,
			Grant: c.in.Grant}, sharing.ErrNotFound, []string{c.in.Grant}},
		"a grant that does not exist": {sharing.HookCall{ContainerID: c.id[:60], PID: c.p.PID, Grant: "k-none"},
			sharing.ErrNotFound, []string{"k-none"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			refused(t, b.ActivateContainer(t.Context(), tc.call), tc.want, append(tc.words, tc.call.ContainerID)...)
			b.active(c.ask, nil)
			if b.caps.count() != 0 {
				t.Error("a refused hook set a cap")
			}
			b.check()
		})
	}
	// None of it stands in the way of the right one.
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	c.remove()
	other.remove()
	b.gone("p", "q")
}

// A container that was made without NRI is unknown. It may be Kerf's, until the container runtime has reported its
// containers.
func TestAContainerThatWasNotInjected(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := (&container{b: b, ask: b.app("p", "gpu-memory-gib:10"), id: b.newID()}).make()
	refused(t, c.hooks(), sharing.ErrUnavailable, "container runtime")
	if err := b.CrossCheck(t.Context(), nil); err != nil { // not all that there is
		t.Fatal(err)
	}
	refused(t, c.hooks(), sharing.ErrUnavailable, "container runtime")
	if err := b.SyncRuntime(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	refused(t, c.hooks(), sharing.ErrNotFound, "without its grant")
	if b.caps.count() != 0 || len(b.PodGrants()) != 0 {
		t.Error("something is held for it")
	}
	b.gone()
}

// Each hook of one container asks, and any may ask again.
func TestActivateIsIdempotent(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.run(b.app("p", "gpu-memory-gib:10", "gpu-percent:25"))
	before := b.active(c.ask, c)
	b.caps.set(func() { b.caps.fail = errors.New("asked again for what is active") })
	for range 3 {
		if err := c.hooks(); err != nil {
			t.Fatal(err)
		}
	}
	b.caps.set(func() { b.caps.fail = nil })
	if after := b.active(c.ask, c); !reflect.DeepEqual(after.Active, before.Active) || after.ID != before.ID {
		t.Errorf("%+v, before %+v", after, before)
	}
	// Injected again with the same id is the same answer.
	again, err := b.Inject(t.Context(), c.ask, c.id)
	if err != nil || again.Grant != c.in.Grant || again.Annotation != c.in.Annotation {
		t.Errorf("%+v %v", again, err)
	}
	b.active(c.ask, c)
	b.check()
	// A cap that was lost is verified before it counts as enforced.
	b.caps.forget()
	b.caps.set(func() { b.caps.fail = fmt.Errorf("set limit: %w", sharing.ErrUnavailable) })
	b.VerifyAll(t.Context())
	refused(t, c.hooks(), sharing.ErrUnavailable)
	b.active(c.ask, c) // it may run, so its attachment stays
	b.caps.set(func() { b.caps.fail = nil })
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	c.limits(map[sharing.GPURef]sharing.Bytes{c.in.Placement[0].GPU: 10 * sharing.GiB})
	c.remove()
	b.gone("p")
}

// The instance before it still runs: the hook waits, and takes over once it has ended.
func TestTheFormerInstance(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("p", "gpu-memory-gib:79")
	former := b.run(ask)
	next := b.inject(ask)
	if next.in.Grant != former.in.Grant {
		t.Fatalf("another grant for the next instance: %s", next.in.Grant)
	}
	for range 2 {
		refused(t, next.hooks(), sharing.ErrUnavailable, "still in use", former.id)
	}
	b.active(ask, former)
	former.limits(map[sharing.GPURef]sharing.Bytes{former.in.Placement[0].GPU: 79 * sharing.GiB})
	// The hooks of the former are not the grant's any more.
	b.VerifyAll(t.Context())
	former.exit()
	if err := next.hooks(); err != nil { // no check has shown that the former ended
		t.Fatal(err)
	}
	b.active(ask, next)
	next.limits(map[sharing.GPURef]sharing.Bytes{former.in.Placement[0].GPU: 79 * sharing.GiB})
	if b.caps.count() != 1 {
		t.Error("the former's limits stay")
	}
	b.Reconcile(t.Context())
	b.active(ask, next)
	b.check()
	next.remove()
	b.gone("p")
}

// CrashLoopBackOff: the grant is the same over all instances, and every one has its cap set and read back.
func TestCrashLoop(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.app("p", "gpu-memory-gib:50")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
		t.Fatal(err)
	}
	grant := b.active(ask, nil).Reservation
	for i := range 6 {
		c := b.run(ask)
		if c.in.Grant != string(grant.ID) {
			t.Fatalf("instance %d has grant %s, want %s", i, c.in.Grant, grant.ID)
		}
		c.limits(map[sharing.GPURef]sharing.Bytes{grant.Placement[0].GPU: 50 * sharing.GiB})
		switch i % 3 {
		case 0:
			c.remove()
		case 1:
			c.exit() // its cgroup is removed later
		case 2:
			c.remove()
			b.eventually("its attachment ends", func() bool { return b.grant(ask).Active == nil })
			if b.caps.count() != 0 {
				t.Error("limits stay")
			}
			// In the back-off no other pod gets it, and the checkpoint has it.
			err := b.ReservePod(t.Context(), []sharing.ContainerRequest{b.app("q", "gpu:3")})
			refused(t, err, sharing.ErrExhausted)
		}
		b.check()
	}
	b.gone("p")
}

// The driver rejects the cap, or a step after it fails. No cap stays set, the grant stays Reserved, and the next hook,
// which asks again, gets it.
func TestAHookThatFails(t *testing.T) {
	for _, what := range []string{"caps", "hook-after-record", "hook-after-caps", "hook-after-arm", "disk"} {
		t.Run(what, func(t *testing.T) {
			b := newPodBench(t)
			if strings.HasPrefix(what, "hook-") {
				b.failpoints(what + "=2*error(injected)->off")
			}
			b.still()
			c := b.inject(b.app("p", "gpu-memory-gib:10"))
			back := func() {}
			switch what {
			case "caps":
				b.caps.set(func() { b.caps.fail = fmt.Errorf("set limit: %w", sharing.ErrUnavailable) })
			case "disk":
				back = b.diskAway()
			}
			for range 2 {
				if err := c.hooks(); err == nil {
					t.Fatal("no error")
				}
				b.active(c.ask, nil)
				if b.caps.count() != 0 {
					t.Error("a limit is set")
				}
				b.check()
			}
			b.caps.set(func() { b.caps.fail = nil })
			back()
			if err := c.hooks(); err != nil {
				t.Fatal(err)
			}
			b.active(c.ask, c)
			c.limits(map[sharing.GPURef]sharing.Bytes{c.in.Placement[0].GPU: 10 * sharing.GiB})
			c.remove()
			b.gone("p")
		})
	}
}

// A driver that forgot the limits between two hooks of one container: without a driver the hook waits.
func TestNoDriverNoActivate(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.inject(b.app("p", "gpu-memory-gib:10"))
	b.Detach("driver unloaded")
	refused(t, c.hooks(), sharing.ErrUnavailable, "driver unloaded")
	b.attach()
	// On a lost GPU the start fails for good: NRI chose it, and cannot choose again for this container.
	gpu := c.in.Placement[0].GPU
	b.SetHealth(gpu.UUID, sharing.HealthLost, "XID 79")
	if err := c.hooks(); err == nil {
		t.Error("activated on a lost GPU")
	}
	b.active(c.ask, nil)
	if b.caps.count() != 0 {
		t.Error("a limit is set")
	}
	b.SetHealth(gpu.UUID, sharing.HealthOK, "")
	if err := c.hooks(); err != nil {
		t.Error(err)
	}
	c.remove()
	b.gone("p")
}

// The hook goes away (its deadline, a kill): what was begun is finished or undone all the same.
func TestAHookThatGoesAway(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.inject(b.app("p", "gpu-memory-gib:10")).make()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.ActivateContainer(ctx, c.calls()[0]); err != nil {
		t.Fatal(err)
	}
	b.active(c.ask, c)
	c.remove()
	b.gone("p")
}

// Two hooks of one container run at once, or a hook and the end of the same container. At most one of them changes the
// grant, and the ledger stays consistent.
func TestHooksAtOnce(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.app("p", "gpu-memory-gib:10")
	for range 10 {
		c := b.inject(ask).make()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				err := b.ActivateContainer(t.Context(), c.calls()[0])
				switch {
				case err == nil, errors.Is(err, sharing.ErrUnavailable), errors.Is(err, sharing.ErrStale),
					errors.Is(err, sharing.ErrNotFound):
				default:
					t.Error(err)
				}
			})
		}
		wg.Go(func() { time.Sleep(time.Millisecond); c.p.end() })
		wg.Go(func() { b.ContainerRemoved(c.id); b.VerifyAll(t.Context()) })
		wg.Go(func() { // the next instance is made meanwhile
			if _, err := b.Inject(t.Context(), ask, b.opt.NewID()); err != nil &&
				!errors.Is(err, sharing.ErrUnavailable) {
				t.Error(err)
			}
		})
		wg.Wait()
		c.remove()
		b.eventually("the attachment ends", func() bool { return b.grant(ask).Active == nil })
		b.check()
	}
	b.gone("p")
}
