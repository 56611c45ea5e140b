// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// The gate admits callers in their order, so many at once. A caller that keeps a place for long blocks no other.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, 10*time.Millisecond)
		began := time.Now()
		var mu sync.Mutex
		var order []int
		var at []time.Duration
		var group sync.WaitGroup
		// The first is slow, and all others take 2 ms.
		for i := range 7 {
			time.Sleep(time.Microsecond) // they come one after the other
			group.Go(func() {
				leave, err := g.enter(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order, at = append(order, i), append(at, time.Since(began).Truncate(time.Millisecond))
				mu.Unlock()
				if i == 0 {
					time.Sleep(time.Second)
				} else {
					time.Sleep(2 * time.Millisecond)
				}
				leave()
				leave() // a second time is none
			})
		}
		group.Wait()
		if !slices.IsSorted(order) || len(order) != 7 {
			t.Errorf("they were let in as %v", order)
		}
		// One place while the first has the other, two after its time.
		ms := time.Millisecond
		if want := []time.Duration{0, 0, 2 * ms, 4 * ms, 6 * ms, 8 * ms, 10 * ms}; !slices.Equal(at, want) {
			t.Errorf("they were let in after %v, want %v", at, want)
		}
		for range 2 { // both places are free again, and no more
			if _, err := g.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.enter(ctx); !errors.Is(err, sharing.ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third, for a millisecond: %v", err)
		}
	})
}
