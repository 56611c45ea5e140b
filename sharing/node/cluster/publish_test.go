// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// world is a runtime whose pool changes, and an API server that may refuse.
type world struct {
	sync.Mutex
	pool    string
	changed chan struct{}
	refuse  bool
	written []string
	beats   int
}

func (w *world) set(pool string, refuse bool) {
	w.Lock()
	defer w.Unlock()
	w.pool, w.refuse = pool, refuse
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) publisher(t *testing.T) *publisher {
	return &publisher{
		log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		changed: func() <-chan struct{} {
			w.Lock()
			defer w.Unlock()
			return w.changed
		},
		ledger: func() status.LedgerState {
			w.Lock()
			defer w.Unlock()
			return status.LedgerState{Pool: w.pool}
		},
		generation: func() int64 { return 7 },
		write: func(_ context.Context, text json.RawMessage) error {
			var s gpunode.Status
			if err := json.Unmarshal(text, &s); err != nil {
				return err
			}
			w.Lock()
			defer w.Unlock()
			if w.refuse {
				return errors.New("refused")
			}
			w.written = append(w.written, s.Pool)
			return nil
		},
		beat: func(context.Context, time.Time, time.Duration) error {
			w.Lock()
			defer w.Unlock()
			w.beats++
			return nil
		},
		pause: time.Millisecond, retry: time.Millisecond, every: time.Millisecond,
	}
}

// What has changed is written, once; what is refused is written later; and the heart beats meanwhile.
func TestPublisher(t *testing.T) {
	w := &world{pool: "a", changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.publisher(t).run(ctx) }()
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			w.Lock()
			met := ok()
			w.Unlock()
			if met {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("waited in vain: %s; written %q", what, w.written)
			}
		}
	}
	has := func(n int, last string) func() bool {
		return func() bool { return len(w.written) == n && w.written[n-1] == last }
	}
	until("the first", has(1, "a"))
	for range 5 {
		w.set("a", false) // nothing is different
		time.Sleep(3 * time.Millisecond)
	}
	w.set("b", true)
	w.Lock()
	beats := w.beats
	w.Unlock()
	until("the heart beats", func() bool { return w.beats > beats+3 })
	w.set("b", false)
	until("the second", has(2, "b"))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A change after a while is written at once, but for a moment in which others join it; the next one waits for the
// pause.
func TestPublisherIsQuickAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{pool: "a", changed: make(chan struct{})}
		p := w.publisher(t)
		p.pause, p.every = time.Second, time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.run(ctx) }()
		written := func(want int) {
			t.Helper()
			synctest.Wait()
			w.Lock()
			defer w.Unlock()
			if len(w.written) != want {
				t.Errorf("%q is written, want %d writes", w.written, want)
			}
		}
		written(1)
		time.Sleep(5 * time.Second)
		w.set("b", false)
		time.Sleep(99 * time.Millisecond)
		w.set("c", false)
		written(1)
		time.Sleep(2 * time.Millisecond)
		written(2)
		w.set("d", false)
		time.Sleep(950 * time.Millisecond)
		written(2)
		time.Sleep(60 * time.Millisecond)
		written(3)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
