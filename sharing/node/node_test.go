// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAGrantFromGrantToEnd(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	a := b.activate(p, "train", sharing.Request{Memory: 10 * sharing.GiB, Percent: 25, GPUs: 1})

	s := b.State(t.Context())
	if !s.Ready || len(s.Grants) != 1 {
		t.Fatalf("state %+v", s)
	}
	g := s.Grants[0]
	if g.Level != sharing.LevelDriver || g.Name != "train" || g.Active == nil || len(g.PIDs) != 1 ||
		g.PIDs[0] != p.PID {
		t.Errorf("grant %+v", g)
	}
	dir, err := b.opt.Cgroups.OfProcess(p.PID)
	if err != nil || dir != g.Active.Cgroup {
		t.Errorf("process is in %q (%v), attachment says %q", dir, err, g.Active.Cgroup)
	}
	for _, gpu := range b.gpus {
		want := least
		if gpu.Ref() == g.Placement[0].GPU {
			want = 10 * sharing.GiB
		}
		if limit, _, err := b.caps.Read(t.Context(), dir, gpu.Ref()); err != nil || limit != want {
			t.Errorf("limit on %s: %d %v, want %d", gpu.Ref(), limit, err, want)
		}
	}
	if !a.OthersCapped || len(a.Own) != 1 || len(a.Others) != 2 {
		t.Errorf("activated %+v", a)
	}
	if err := b.Release(t.Context(), p.Peer, a.ID); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("release of a running attachment: %v", err)
	}
	p.end()
	b.eventually("the grant ends with its process", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	b.empty()
}

func TestRefusals(t *testing.T) {
	b := newBench(t)
	b.start()
	p, q := b.tenant(), b.tenant()
	id, err := b.Reserve(t.Context(), p.Peer, "a", gib(10))
	if err != nil {
		t.Fatal(err)
	}
	stale := p.Peer
	stale.Start++
	other := q.Peer
	other.UID = 2000
	tests := map[string]struct {
		do   func() error
		want error
	}{
		"a taken name": {func() error { _, err := b.Reserve(t.Context(), q.Peer, "a", gib(1)); return err },
			sharing.ErrConflict},
		"a bad name": {func() error { _, err := b.Reserve(t.Context(), q.Peer, "../a", gib(1)); return err },
			sharing.ErrInvalid},
		"no amount": {func() error {
			_,
				err := b.Reserve(t.Context(), q.Peer, "", sharing.Request{GPUs: 1})
			return err
		}, sharing.ErrInvalid},
		"more than any GPU": {func() error { _, err := b.Reserve(t.Context(), q.Peer, "", gib(200)); return err },
			sharing.ErrUnsupported},
		"a pid taken by another": {func() error { _, err := b.Reserve(t.Context(), stale, "", gib(1)); return err },
			sharing.ErrStale},
		"activate by another process": {func() error { _, err := b.Activate(t.Context(), q.Peer, id); return err },
			sharing.ErrDenied},
		"activate of nothing": {func() error { _, err := b.Activate(t.Context(), p.Peer, "k-none"); return err },
			sharing.ErrNotFound},
		"release by another user": {func() error { return b.Release(t.Context(), other, id) }, sharing.ErrDenied},
		"release of nothing": {func() error { return b.Release(t.Context(), p.Peer, "k-none") },
			sharing.ErrNotFound},
		"a level that no GPU gives": {func() error {
			r := gib(1)
			r.MinLevel = sharing.LevelHardware
			_, err := b.Reserve(t.Context(), q.Peer, "", r)
			return err
		}, sharing.ErrUnsupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.do(); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
	if err := b.Release(t.Context(), p.Peer, id); err != nil {
		t.Fatal(err)
	}
	b.empty()
}

// Whatever step of an activate fails, nothing stays: no cap, no cgroup, no record, no grant.
func TestAFailedActivateLeavesNothing(t *testing.T) {
	for _, point := range activatePoints() {
		if point == afterThaw {
			continue
		}
		t.Run(point, func(t *testing.T) {
			b := newBench(t)
			b.failpoints(point + "=1*error(injected)->off")
			b.start()
			p := b.tenant()
			from, err := b.opt.Cgroups.OfProcess(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			id, err := b.Reserve(t.Context(), p.Peer, "x", gib(10))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Activate(t.Context(), p.Peer, id); err == nil || !strings.Contains(err.Error(), "injected") {
				t.Fatalf("activate: %v", err)
			}
			b.empty()
			b.runsIn(p, from)
			b.activate(p, "x", gib(79)) // and all of a GPU can be had at once
		})
	}
	t.Run("the driver refuses the cap", func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.caps.set(func() { b.caps.fail = fmt.Errorf("set limit: %w", sharing.ErrUnavailable) })
		p := b.tenant()
		id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Activate(t.Context(), p.Peer, id); !errors.Is(err, sharing.ErrUnavailable) {
			t.Fatalf("activate: %v", err)
		}
		b.empty()
	})
	t.Run("the process dies before it is moved", func(t *testing.T) {
		b := newBench(t)
		b.start()
		p := b.tenant()
		id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
		if err != nil {
			t.Fatal(err)
		}
		p.end()
		if _, err := b.Activate(t.Context(), p.Peer, id); err == nil {
			t.Fatal("a dead process was activated")
		}
		b.eventually("the dead process's grant is dropped",
			func() bool { return len(b.State(t.Context()).Grants) == 0 })
	})
	t.Run("the error comes when the process runs: the attachment stays until the process ends", func(t *testing.T) {
		b := newBench(t)
		b.failpoints(afterThaw + "=error(injected)")
		b.start()
		p := b.tenant()
		id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Activate(t.Context(), p.Peer, id); err == nil {
			t.Fatal("no error")
		}
		if s := b.State(t.Context()); len(s.Grants) != 1 || s.Grants[0].Active == nil {
			t.Fatalf("the process runs in its cgroup without an attachment: %+v", s.Grants)
		}
		p.end()
		b.eventually("the attachment ends", func() bool { return len(b.State(t.Context()).Grants) == 0 })
		b.empty()
	})
}

// A whole GPU on which another process is found is not called exclusive.
func TestAStrangerOnAWholeGPU(t *testing.T) {
	b := newBench(t)
	b.start()
	p, stranger := b.tenant(), b.tenant()
	a := b.activate(p, "", sharing.Request{Kind: sharing.KindWhole, GPUs: 1})
	gpu := a.Own[0].Ref()
	own := gpudriver.ProcessUse{PID: p.PID, Used: sharing.GiB, Known: true}
	b.driver.put(gpu, []gpudriver.ProcessUse{own})
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelExclusive || g.Used[0] != sharing.GiB {
		t.Errorf("alone on its GPU: %+v", g)
	}
	b.driver.put(gpu, []gpudriver.ProcessUse{own, {PID: stranger.PID, Used: sharing.GiB, Known: true}})
	b.changed.announce() // a new picture
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelNone ||
		!strings.Contains(g.LevelReason, strconv.Itoa(stranger.PID)) || g.Used[0] != sharing.GiB {
		t.Errorf("with an unmanaged process: %+v", g)
	}
}

// A process that is on a GPU already would keep its memory outside of the cap.
func TestAProcessOnAGPUIsNotActivated(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	b.driver.put(b.gpus[2].Ref(), []gpudriver.ProcessUse{{PID: p.PID, Used: sharing.GiB, Known: true}})
	id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(t.Context(), p.Peer, "", gib(10)); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("a second grant of one process: %v", err)
	}
	if _, err := b.Activate(t.Context(), p.Peer, id); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("activate: %v", err)
	}
	b.empty()
}

// Memory that the driver still charges to an empty cgroup is not free.
func TestAAttachmentEndsWhenNothingIsCharged(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	b.activate(p, "", gib(79))
	b.caps.set(func() { b.caps.used = 5 * sharing.GiB })
	p.end()
	b.eventually("people see it", func() bool { return len(b.State(t.Context()).Warnings) == 1 })
	if s := b.State(t.Context()); len(s.Grants) != 1 || s.GPUs[0].Granted != 79*sharing.GiB {
		t.Errorf("memory in use was given back: %+v", s.Grants)
	}
	b.caps.set(func() { b.caps.used = 0 })
	b.eventually("the attachment ends", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	b.empty()
	if w := b.State(t.Context()).Warnings; len(w) != 0 {
		t.Errorf("warnings left: %q", w)
	}
}

// A GPU that hangs cannot tell that nothing is in use: its memory is not given back on doubt.
func TestAAttachmentOnASilentGPUWaits(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	gpu := b.activate(p, "", gib(10)).Own[0].Ref()
	b.SetHealth(gpu.UUID, sharing.HealthSuspect, "does not answer")
	p.end()
	b.eventually("people see it", func() bool { return len(b.State(t.Context()).Warnings) == 1 })
	if n := len(b.State(t.Context()).Grants); n != 1 {
		t.Errorf("%d grants: the attachment ended on doubt", n)
	}
	b.SetHealth(gpu.UUID, sharing.HealthOK, "")
	b.eventually("the attachment ends", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	b.empty()
}

// An agent that is stopped while it activates a grant finishes: the process is in its cgroup and may go on.
func TestStopDuringActivate(t *testing.T) {
	b := newBench(t)
	b.failpoints("arm-after-caps=sleep(300ms)")
	stop := b.started()
	p := b.tenant()
	id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := b.Activate(t.Context(), p.Peer, id); done <- err }()
	b.eventually("it is at the failpoint", func() bool { return b.caps.count() > 0 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("activate: %v", err)
	}
	p.end()
	b.restart(func() {}, func() {})
	b.eventually("the attachment ends", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	b.empty()
}

func TestAGrantEndsWithItsProcess(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	if _, err := b.Reserve(t.Context(), p.Peer, "x", gib(10)); err != nil {
		t.Fatal(err)
	}
	p.end()
	b.eventually("the grant is dropped", func() bool { return len(b.State(t.Context()).Grants) == 0 })
}

// Promise 1 under a race: of many processes that ask at once, exactly as many get a share as fit.
func TestARaceGrantsNoByteTwice(t *testing.T) {
	b := newBench(t)
	b.start()
	const askers = 30 // three GPUs of 79 GiB take 7 of 10 GiB each
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range askers {
		p := b.tenant()
		wg.Go(func() {
			id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
			if err == nil {
				_, err = b.Activate(t.Context(), p.Peer, id)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case !errors.Is(err, sharing.ErrExhausted):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 21 {
		t.Errorf("%d of %d got 10 GiB of three GPUs with 79 GiB, want 21", won, askers)
	}
	for _, g := range b.State(t.Context()).GPUs {
		if g.Granted > g.Usable() {
			t.Errorf("GPU %d: %v granted of %v", g.Index, g.Granted, g.Usable())
		}
	}
}

func TestNotReady(t *testing.T) {
	b := newBench(t)
	b.Runtime = New(b.opt)
	p := b.tenant()
	ask := func() error { _, err := b.Reserve(t.Context(), p.Peer, "", gib(1)); return err }
	if err := ask(); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("before restore: %v", err)
	}
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ask(); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("before a driver: %v", err)
	}
	b.attach()
	b.Conditions.Set(conditions.Config, "something stands in the way")
	if err := ask(); !errors.Is(err, sharing.ErrUnavailable) ||
		!strings.Contains(err.Error(), "something stands in the way") {
		t.Errorf("blocked: %v", err)
	}
	b.Conditions.Set(conditions.Config, "")
	b.Conditions.RejectConfig([]string{"spec.pools[0].name: is empty"}, true)
	if err := ask(); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("without a configuration: %v", err)
	}
	b.apply(b.opt.Config, b.opt.Pool)
	id, err := b.Reserve(t.Context(), p.Peer, "", gib(1))
	if err != nil {
		t.Fatal(err)
	}
	if b.DriverLost() || New(b.opt).DriverLost() {
		t.Error("a driver is reported as gone that is there, or was never there")
	}
	b.Detach("the driver is gone")
	if !b.DriverLost() {
		t.Error("the driver is not reported as gone")
	}
	if why := b.NotReady(); len(why) != 1 || why[0] != "the driver is gone" {
		t.Errorf("not ready: %q", why)
	}
	if _, err := b.Activate(t.Context(), p.Peer, id); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("activate without a driver: %v", err)
	}
}

// A record that cannot be written stops the activate, before any cap.
func TestAFullDiskRefusesAndLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	id, err := b.Reserve(t.Context(), p.Peer, "", gib(1))
	if err != nil {
		t.Fatal(err)
	}
	back := b.diskAway()
	if _, err := b.Activate(t.Context(), p.Peer, id); err == nil {
		t.Error("activated without a record")
	}
	if b.caps.count() != 0 {
		t.Error("a cap was set without a record")
	}
	if _, err := b.Reserve(t.Context(), p.Peer, "", gib(1)); !errors.Is(err, sharing.ErrUnavailable) ||
		!strings.Contains(err.Error(), "write record") {
		t.Errorf("a grant while the record cannot be written: %v", err)
	}
	back()
	b.eventually("the record is written", func() bool { return len(b.NotReady()) == 0 })
	b.activate(p, "", gib(1))
	if _, err := os.Stat(b.opt.RecordPath); err != nil {
		t.Error(err)
	}
}
