// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A GPU that hangs costs its callers their deadline once, later callers nothing, and other GPUs nothing.
func TestHangIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := gpu(0), gpu(1)
		l, _ := open4test(t, Options{HangAfter: time.Second}, bad, good)
		if _, _, err := l.GPUs(t.Context()); err != nil {
			t.Fatal(err)
		}
		bad.gate = make(chan struct{})
		before := runtime.NumGoroutine()
		start := time.Now()
		err := l.Check(within(t, 5*time.Second), bad.id.uuid)
		if took := time.Since(start); !errors.Is(err, sharing.ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) || took != 5*time.Second {
			t.Fatalf("after %v: %v", took, err)
		}
		start = time.Now()
		for range 100 {
			if err := l.Check(t.Context(), bad.id.uuid); !errors.Is(err, sharing.ErrUnavailable) {
				t.Fatalf("while it hangs: %v", err)
			}
		}
		if n := runtime.NumGoroutine() - before; n > 1 {
			t.Errorf("%d goroutines are kept, want 1", n)
		}
		if err := l.Check(t.Context(), good.id.uuid); err != nil {
			t.Errorf("the other GPU: %v", err)
		}
		gpus, left, err := l.GPUs(t.Context())
		if err != nil || len(gpus) != 1 || len(left) != 1 || !errors.Is(left[0], sharing.ErrUnavailable) {
			t.Errorf("inventory meanwhile: %v, %v, %v", gpus, left, err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("refusals took %v", took)
		}
		close(bad.gate)
		synctest.Wait()
		if err := l.Check(t.Context(), bad.id.uuid); err != nil {
			t.Errorf("after it came back: %v", err)
		}
	})
}

// A caller that gives up early must not make the GPU look broken to others.
func TestCancelledCallIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		g.gate = make(chan struct{})
		l, _ := open4test(t, Options{HangAfter: time.Second}, g)
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error)
		go func() { cancelled <- l.Check(ctx, g.id.uuid) }()
		synctest.Wait()
		cancel()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled call: %v", err)
		}
		next := make(chan error)
		go func() { next <- l.Check(t.Context(), g.id.uuid) }()
		time.Sleep(500 * time.Millisecond) // half of HangAfter, in the test's own time
		close(g.gate)
		if err := <-next; err != nil {
			t.Errorf("the next caller: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := l.Check(t.Context(), g.id.uuid); err != nil {
			t.Errorf("a late timer broke the lane: %v", err)
		}
	})
}

// Who waits behind a call that turns out to hang is refused as soon as that is known.
func TestWaitersLearnOfAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		g.gate = make(chan struct{})
		l, _ := open4test(t, Options{HangAfter: time.Second}, g)
		first := make(chan error)
		go func() { first <- l.Check(within(t, 100*time.Millisecond), g.id.uuid) }()
		synctest.Wait()
		start := time.Now()
		waiter := make(chan error)
		go func() { waiter <- l.Check(t.Context(), g.id.uuid) }()
		<-first
		err := <-waiter
		if took := time.Since(start); !errors.Is(err, sharing.ErrUnavailable) || took != time.Second {
			t.Errorf("after %v: %v; want a refusal after 1s", took, err)
		}
		close(g.gate)
	})
}

func TestCallWithoutDeadlineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		g.gate = make(chan struct{})
		l, _ := open4test(t, Options{CallTimeout: 3 * time.Second}, g)
		start := time.Now()
		if err := l.Check(t.Context(), g.id.uuid); !errors.Is(err, sharing.ErrUnavailable) ||
			time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		close(g.gate)
	})
}

// Close does not wait for a driver that hangs, and shuts the library down when it comes back.
func TestCloseWhileHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		g.gate = make(chan struct{})
		ended := make(chan struct{})
		l, d := open4test(t, Options{CallTimeout: time.Second}, g)
		l.ended = func() { close(ended) }
		_ = l.Check(t.Context(), g.id.uuid)
		start := time.Now()
		if err := l.Close(); !errors.Is(err, sharing.ErrUnavailable) || time.Since(start) != defaultCloseWait {
			t.Errorf("Close after %v: %v", time.Since(start), err)
		}
		if d.shut != 0 {
			t.Error("the library was shut down under a call")
		}
		close(g.gate)
		<-ended
		if d.shut != 1 {
			t.Errorf("shut down %d times", d.shut)
		}
	})
}

func TestWaitEvent(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := gpu(0), gpu(1)
	b.noEvents = true
	l, d := open4test(t, Options{}, a, b)
	defer func() {
		close(d.waitGate)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, _, err := l.GPUs(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.WaitEvent(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	gi := uint32(3)
	d.events <- rawEvent{dev: a, xid: 79, gi: &gi}
	d.events <- rawEvent{dev: gpu(9), xid: 48} // collected while no caller waits
	ev, err := l.WaitEvent(within(t, 10*time.Second))
	if err != nil || ev.GPU != a.id.uuid || ev.XID != 79 || ev.GI == nil || *ev.GI != 3 || ev.CI != nil {
		t.Errorf("%+v, %v", ev, err)
	}
	if ev, err := l.WaitEvent(within(t, 10*time.Second)); err != nil || ev.GPU != "" || ev.XID != 48 {
		t.Errorf("an event of no known GPU: %+v, %v", ev, err)
	}
}

// While a caller keeps the registration there is none, and faults are reported again afterwards.
func TestPauseEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		l, d := open4test(t, Options{}, g)
		if _, _, err := l.GPUs(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, err := l.PauseEvents(t.Context()) // before the first wait
		if err != nil {
			t.Fatal(err)
		}
		before()
		go func() { d.events <- rawEvent{dev: g, xid: 1} }()
		if ev, err := l.WaitEvent(t.Context()); err != nil || ev.XID != 1 {
			t.Fatalf("%+v, %v", ev, err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.PauseEvents(short); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("while a wait goes on: %v", err)
		}
		got := make(chan func(), 1)
		go func() {
			resume, err := l.PauseEvents(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- resume
		}()
		synctest.Wait()
		d.events <- rawEvent{dev: g, xid: 2} // ends the wait
		one := <-got
		two, err := l.PauseEvents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.Faults.mu.Lock()
		if l.Faults.open {
			t.Error("there is an event set")
		}
		l.Faults.mu.Unlock()
		one()
		one()
		if !l.Faults.holds() {
			t.Error("the second one holds no more")
		}
		two()
		go func() { d.events <- rawEvent{dev: g, xid: 3} }()
		for want := uint64(2); want <= 3; {
			ev, err := l.WaitEvent(t.Context())
			if err != nil || ev.XID != want {
				t.Fatalf("%+v, %v, want %d", ev, err, want)
			}
			want++
		}
		close(d.waitGate)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Errors are returned, do not end the waiting, and are not asked for in a tight loop.
func TestWaitEventBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		l, d := open4test(t, Options{}, g)
		l.Faults.backOff = firstBackOff
		if _, _, err := l.GPUs(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.waitErr = lost()
		ctx := within(t, 10*time.Minute)
		reported := 0
		for ctx.Err() == nil {
			if _, err := l.WaitEvent(ctx); errors.Is(err, sharing.ErrLost) {
				reported++
			}
		}
		d.mu.Lock()
		if d.waits > 30 || reported < 10 || reported > d.waits {
			t.Errorf("in 10 minutes asked %d times, reported %d errors", d.waits, reported)
		}
		d.waitErr = nil
		d.mu.Unlock()
		go func() { d.events <- rawEvent{dev: g, xid: 13} }()
		for {
			ev, err := l.WaitEvent(t.Context())
			if errors.Is(err, sharing.ErrLost) {
				continue // the last error was returned in the meantime
			}
			if err != nil || ev.XID != 13 {
				t.Errorf("after recovery: %+v, %v", ev, err)
			}
			break
		}
		close(d.waitGate)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitEventUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		g.noEvents = true
		l, d := open4test(t, Options{}, g)
		if _, err := l.WaitEvent(t.Context()); !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("no GPU is known: %v", err)
		}
		if _, _, err := l.GPUs(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		d.eventsErr = check("nvmlEventSetCreate", nvml.ERROR_NOT_SUPPORTED)
		d.mu.Unlock()
		if _, err := l.WaitEvent(t.Context()); !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("no events at all: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
