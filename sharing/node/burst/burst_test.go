// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

var gpu = sharing.GPURef{UUID: "a"}

// node is one GPU of 80 units. Its grants have 10 each, and may burst by 30.
type node struct {
	mu       sync.Mutex
	health   sharing.Health
	unknown  bool
	loans    map[ledger.GrantID]sharing.Bytes
	used     map[ledger.GrantID]sharing.Bytes
	fails    map[ledger.GrantID]bool
	reserved sharing.Bytes
}

const unit = sharing.GiB

func (n *node) GPUs() ([]ledger.View, bool) {
	v, _ := n.Bursts(gpu)
	return []ledger.View{v}, !n.unknown
}

func (n *node) Bursts(sharing.GPURef) (v ledger.View, loans []ledger.Burst) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v.GPU = sharing.GPU{UUID: gpu.UUID, Memory: 80 * unit, Health: n.health}
	v.GrantedMemory = n.reserved
	for _, id := range slices.Sorted(maps.Keys(n.loans)) {
		v.GrantedMemory, v.BurstMemory = v.GrantedMemory+10*unit, v.BurstMemory+n.loans[id]
		loans = append(loans, ledger.Burst{ID: id, Memory: 10 * unit, Burst: n.loans[id], MaxBurst: 30 * unit})
	}
	v.FreeMemory = v.GPU.Usable() - v.GrantedMemory - v.BurstMemory
	return v, loans
}

func (n *node) Usage(_ context.Context, id ledger.GrantID, _ sharing.GPURef) (sharing.Bytes, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	used, known := n.used[id]
	return used, known
}

func (n *node) SetBurst(_ context.Context, id ledger.GrantID, _ sharing.GPURef, lent sharing.Bytes) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails[id] {
		return fmt.Errorf("no answer: %w", sharing.ErrUnavailable)
	}
	n.loans[id] = lent
	return nil
}

// set changes the node while its loop runs.
func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// grant grants some units.
func (n *node) grant(units sharing.Bytes) func() error {
	return func() error {
		if v, _ := n.Bursts(gpu); v.FreeMemory < units*unit {
			return &allocator.NoFit{}
		}
		n.reserved += units * unit
		return nil
	}
}

// missing is what a grant of some units lacks.
func (n *node) missing(units sharing.Bytes) func(map[sharing.GPURef]bool) map[sharing.GPURef]sharing.Bytes {
	return func(inUse map[sharing.GPURef]bool) map[sharing.GPURef]sharing.Bytes {
		v, _ := n.Bursts(gpu)
		if need := (units * unit).SubFloor(v.FreeMemory); need > 0 && !inUse[gpu] {
			return map[sharing.GPURef]sharing.Bytes{gpu: need}
		}
		return nil
	}
}

func newLender(n *node) *Manager {
	return &Manager{Log: slog.New(slog.DiscardHandler), Node: n, Now: time.Now, Announce: func() {}}
}

func (n *node) want(t *testing.T, when string, lent ...sharing.Bytes) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	var got []sharing.Bytes
	for _, id := range slices.Sorted(maps.Keys(n.loans)) {
		got = append(got, n.loans[id]/unit)
	}
	if diff := cmp.Diff(lent, got); diff != "" {
		t.Errorf("%s: %s", when, diff)
	}
}

// Free memory is given evenly as burst memory. A loan that is too large shrinks by its idle part, and stays if its
// usage is unknown.
func TestBalance(t *testing.T) {
	n := &node{health: sharing.HealthOK, loans: map[ledger.GrantID]sharing.Bytes{"x": 0, "y": 0},
		used: map[ledger.GrantID]sharing.Bytes{}}
	l := newLender(n)
	n.unknown = true
	l.Balance(t.Context())
	n.want(t, "burst memory is not known", 0, 0)
	n.unknown, n.health = false, sharing.HealthUnhealthy
	l.Balance(t.Context())
	n.want(t, "unhealthy GPU", 0, 0)
	n.health = sharing.HealthOK
	l.Balance(t.Context())
	n.want(t, "free", 30, 30)
	n.reserved = 40 * unit // by force
	n.used["x"] = 25 * unit
	l.Balance(t.Context())
	n.want(t, "x uses 15 of its loan, and the usage of y is unknown", 15, 30)
	n.used["y"], n.fails = 0, map[ledger.GrantID]bool{"y": true}
	l.Balance(t.Context())
	n.want(t, "the cap of y cannot be lowered", 15, 30)
	n.fails = nil
	l.Balance(t.Context())
	n.want(t, "both", 15, 10)
}

// A grant takes back what is idle. If too much is in use, no burst memory is given until the request had time to come
// again.
func TestGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{health: sharing.HealthOK, loans: map[ledger.GrantID]sharing.Bytes{"x": 30 * unit, "y": 30 * unit}}
		n.used = map[ledger.GrantID]sharing.Bytes{"x": 30 * unit, "y": 10 * unit}
		l := newLender(n)
		if err := l.Reserve(t.Context(), n.grant(20), n.missing(20)); err != nil {
			t.Fatal(err)
		}
		n.want(t, "20 of the idle part", 30, 10)
		if err := l.Reserve(t.Context(), n.grant(40), n.missing(40)); err == nil {
			t.Fatal("a grant has memory that is in use")
		}
		n.want(t, "all that was idle", 20, 0)
		for range 2 {
			l.Balance(t.Context())
			n.want(t, "a grant waits", 20, 0)
			time.Sleep(wantedFor / 2)
		}
		l.Balance(t.Context())
		n.want(t, "no grant waits any more", 20, 20)
		if err := l.Recall(t.Context(), func() map[sharing.GPURef]sharing.Bytes {
			return map[sharing.GPURef]sharing.Bytes{gpu: 5 * unit}
		}, n.grant(5)); err != nil {
			t.Fatal(err)
		}
		n.want(t, "5 more", 20, 15)
	})
}

// Loans follow a change of the node, and its usage every second.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{health: sharing.HealthOK, loans: map[ledger.GrantID]sharing.Bytes{"x": 0},
			used: map[ledger.GrantID]sharing.Bytes{"x": 40 * unit}}
		l, changed := newLender(n), make(chan struct{})
		l.Changed, l.Announce = func() <-chan struct{} { return changed }, func() {}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		n.want(t, "at once", 30)
		n.set(func() { n.reserved = 60 * unit })
		time.Sleep(2 * gap)
		n.want(t, "in use", 30)
		n.set(func() { n.used["x"] = 0 })
		time.Sleep(every + gap)
		synctest.Wait()
		n.want(t, "after a second", 10)
		n.set(func() { n.reserved = 0 })
		close(changed)
		time.Sleep(2 * gap)
		synctest.Wait()
		n.want(t, "after a change", 30)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
