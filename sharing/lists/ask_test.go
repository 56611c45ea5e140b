// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// asker asks at a time for a list, and waits for so long. By call is the call whose answer it gets; 0 for an error.
type asker struct {
	at, within time.Duration
	gpu        sharing.GPURef
	by, after  int
}

// Who asks for the same list at one moment shares a call. Who asks during a call gets the answer of the next one,
// together with all others who wait. A caller who leaves takes no answer from others.
func TestCallsAreShared(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		askers []asker
		calls  int32
	}{
		"one": {[]asker{{0, 99 * ms, gpu0, 1, 10}}, 1},
		"at one moment": {[]asker{{0, 99 * ms, gpu0, 1, 10}, {0, 99 * ms, gpu0, 1, 10}, {0, 99 * ms, gpu0, 1, 10}},
			1},
		"two GPUs":          {[]asker{{0, 99 * ms, gpu0, 1, 10}, {1 * ms, 99 * ms, gpu1, 2, 11}}, 2},
		"one after another": {[]asker{{0, 99 * ms, gpu0, 1, 10}, {20 * ms, 99 * ms, gpu0, 2, 30}}, 2},
		"during a call": {[]asker{{0, 99 * ms, gpu0, 1, 10}, {1 * ms, 99 * ms, gpu0, 2, 20},
			{9 * ms, 99 * ms, gpu0, 2, 20}}, 2},
		"no time": {[]asker{{0, 5 * ms, gpu0, 0, 5}, {1 * ms, 99 * ms, gpu0, 2, 15}}, 2},
		"no time to wait": {[]asker{{0, 99 * ms, gpu0, 1, 10}, {1 * ms, 5 * ms, gpu0, 0, 6},
			{2 * ms, 99 * ms, gpu0, 2, 20}}, 2},
		"leaves while others wait": {
			[]asker{{0, 99 * ms, gpu0, 1, 10}, {1 * ms, 14 * ms, gpu0, 0, 15}, {2 * ms, 99 * ms, gpu0, 3, 25}}, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l, _ := bench(nil)
				d := &driver{after: map[sharing.GPURef]time.Duration{gpu0: 10 * ms, gpu1: 10 * ms}}
				began := time.Now()
				var all sync.WaitGroup
				for i, a := range c.askers {
					all.Go(func() {
						time.Sleep(a.at)
						ctx, cancel := context.WithTimeout(t.Context(), a.within)
						defer cancel()
						got := l.Query(ctx, d, a.gpu)
						by := 0
						if got.Err == nil {
							by = got.Uses[0].PID
						} else if !errors.Is(got.Err, sharing.ErrUnavailable) {
							t.Errorf("asker %d: %v", i, got.Err)
						}
						if took := time.Since(began); by != a.by || took != time.Duration(a.after)*ms ||
							got.GPU != a.gpu {
							t.Errorf("asker %d has the answer of call %d about %s after %s: %v", i, by, got.GPU, took,
								got.Err)
						}
					})
				}
				all.Wait()
				if n := d.calls.Load(); n != c.calls {
					t.Errorf("%d calls, want %d", n, c.calls)
				}
				if len(l.calls.lines) > 0 {
					t.Error("a list that no one requests is kept")
				}
			})
		})
	}
}

// Lists of another driver are others.
func TestAnotherDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, _ := bench(nil)
		var all sync.WaitGroup
		for _, d := range []*driver{{}, {}} {
			all.Go(func() {
				if got := l.Query(t.Context(), d, gpu0); got.Err != nil || d.calls.Load() != 1 {
					t.Errorf("%d calls: %v", d.calls.Load(), got.Err)
				}
			})
		}
		all.Wait()
	})
}
