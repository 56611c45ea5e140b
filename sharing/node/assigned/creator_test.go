// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package assigned

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// world is a node and an API server. It records what happens, in its order.
type world struct {
	mu  sync.Mutex
	log []string
	// broken are the devices that cannot be created.
	broken map[string]bool
	// outcome is what the claims say. away is true while the API server does not answer.
	outcome map[string]dra.Outcome
	away    bool
	// published is how many reads of the API server precede the taint.
	published int
	creator   *Creator
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) set(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

// took returns what happened since the last call.
func (w *world) took() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.log, ", ")
	w.log = nil
	return out
}

func (w *world) Create(_ context.Context, a dra.Allocation, device string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("create %s", device)
	if w.broken[device] {
		return errors.New("no memory for " + device)
	}
	return nil
}

func (w *world) Release(a dra.Allocation) { w.set(func() { w.note("release %s", a.Name) }) }

func (w *world) GPUOf(device string) (sharing.GPUID, bool) {
	gpu, _, ok := strings.Cut(device, "-")
	return sharing.GPUID(gpu), ok
}

func (w *world) Announce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var gpus []string
	for _, gpu := range []sharing.GPUID{"a", "b"} {
		if w.creator.Tainted(gpu) {
			gpus = append(gpus, string(gpu))
		}
	}
	w.note("taints %q", gpus)
}

func (w *world) Outcome(_ context.Context, a dra.Allocation) (dra.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return 0, errors.New("connection refused")
	}
	return w.outcome[a.Name], nil
}

func (w *world) Report(_ context.Context, a dra.Allocation, failure error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return errors.New("connection refused")
	}
	w.outcome[a.Name] = dra.OutcomeReady
	if failure != nil {
		w.outcome[a.Name] = dra.OutcomeOver
	}
	w.note("report %s: %v", a.Name, failure)
	return nil
}

func (w *world) Tainted(_ context.Context, device string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published--
	w.note("read %s %t", device, w.published < 0)
	return w.published < 0, nil
}

func allocation(name string, devices ...string) dra.Allocation {
	return dra.Allocation{UID: "uid-" + name, Namespace: "ns", Name: name, At: "t", Node: "n", Devices: devices}
}

// run starts a creator on a world, and returns how it ends.
func (w *world) run(t *testing.T) (end func()) {
	w.creator = New(slog.New(slog.DiscardHandler), w, w)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.creator.Run(ctx) }()
	return func() { cancel(); <-done }
}

func newWorld() *world {
	return &world{outcome: map[string]dra.Outcome{}, broken: map[string]bool{}}
}

func (w *world) want(t *testing.T, what, want string) {
	t.Helper()
	synctest.Wait()
	if got := w.took(); got != want {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

// TestCreated: the instances are created once, held while the claim is assigned, and released after that.
func TestCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.run(t)()
		one := allocation("one", "a-1", "b-2")
		w.creator.Want([]dra.Allocation{one})
		w.want(t, "assigned", "create a-1, create b-2, report one: <nil>")
		w.creator.Want([]dra.Allocation{one, allocation("two", "b-3")})
		time.Sleep(time.Hour)
		w.want(t, "another one", "create b-3, report two: <nil>")
		w.creator.Want([]dra.Allocation{allocation("two", "b-3")})
		w.want(t, "not assigned any more", "release one")
	})
}

// TestTaintBeforeFailure: the failure is written once the API server has the taint. The taint ends after a time, and
// with the next instance of the GPU.
func TestTaintBeforeFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.run(t)()
		w.broken["a-1"], w.published = true, 2
		one := allocation("one", "a-1")
		w.creator.Want([]dra.Allocation{one})
		time.Sleep(patience + 5*time.Second)
		w.want(t, "failed", strings.Repeat("create a-1, ", 5)+`release one, taints ["a"], read a-1 false, `+
			"release one, read a-1 false, release one, read a-1 true, report one: no memory for a-1")
		time.Sleep(firstTaint)
		w.want(t, "later", "taints []")
		w.creator.Want([]dra.Allocation{allocation("two", "a-1")}) // allocated again
		time.Sleep(patience + time.Second)
		if got := w.took(); !strings.HasSuffix(got, "report two: no memory for a-1") || !w.creator.Tainted("a") {
			t.Errorf("a second time: %s", got)
		}
		w.set(func() { w.broken["a-1"] = false })
		w.creator.Want([]dra.Allocation{allocation("three", "a-1")})
		synctest.Wait()
		if got := w.took(); !strings.Contains(got, "create a-1, taints [], report three: <nil>") {
			t.Errorf("after the failure: %s", got)
		}
	})
}

// TestTaintEndsUnwatched: a taint that ends while nothing waits for it is published as ended, once.
func TestTaintEndsUnwatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.creator = New(slog.New(slog.DiscardHandler), w, w)
		w.creator.taints.set("a", time.Now())
		time.Sleep(firstTaint)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.creator.Run(ctx) }()
		w.want(t, "ended before", "taints []")
		w.creator.Want(nil)
		time.Sleep(time.Hour)
		w.want(t, "later", "")
		cancel()
		<-done
	})
}

// TestRestart: a creator that starts again goes on from the claims. An outcome stays, whatever happens to the GPU.
func TestRestart(t *testing.T) {
	all := []dra.Allocation{allocation("failed", "a-1"), allocation("new", "b-1"), allocation("ready", "b-2")}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.outcome["failed"], w.outcome["ready"], w.away = dra.OutcomeOver, dra.OutcomeReady, true
		w.broken["b-2"] = true
		end := w.run(t)
		w.creator.Want(all)
		time.Sleep(time.Minute)
		w.want(t, "without an API server", "")
		w.set(func() { w.away = false })
		time.Sleep(time.Minute)
		got := strings.Split(w.took(), ", ")
		for _, want := range []string{"create b-1", "report new: <nil>", "create b-2"} {
			if !slices.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
		if text := fmt.Sprint(got); strings.Contains(text, "failed") || strings.Contains(text, "report ready") ||
			strings.Contains(text, "taints") {
			t.Errorf("an outcome has changed: %q", got)
		}
		end()
		w.took()
		w.broken = nil
		defer w.run(t)()
		w.creator.Want(all)
		synctest.Wait()
		if got := w.took(); strings.Contains(got, "report") || !strings.Contains(got, "create b-1") {
			t.Errorf("after another start: %s", got)
		}
	})
}

// TestEndWhileCreating: an allocation that ends leaves no hold, whatever it waits for.
func TestEndWhileCreating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		end := w.run(t)
		w.broken["a-1"] = true
		w.creator.Want([]dra.Allocation{allocation("one", "a-1")})
		time.Sleep(2 * time.Second)
		w.took()
		w.creator.Want(nil)
		w.want(t, "deallocated", "release one")
		w.creator.Want([]dra.Allocation{allocation("one", "a-1")})
		synctest.Wait()
		end()
		w.want(t, "stopped", "create a-1, release one")
	})
}
