// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/compute"
)

// account is a budget in memory.
type account struct {
	mu               sync.Mutex
	balance, charged time.Duration
	ran              time.Duration
	refills          int
	err              error
}

func (a *account) Settle(ran time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ran += ran
	return a.err
}

func (a *account) Read() (balance, charged time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance, a.charged, a.err
}

func (a *account) Refill(add time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.balance += add
	a.refills++
	return a.err
}

func (a *account) spend(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.balance, a.charged = a.balance-d, a.charged+d
}

type source struct {
	leases []Lease
	used   map[compute.ID]int
	err    error
}

func (s *source) Leases() (compute.Mode, []Lease) { return compute.Strict, s.leases }

func (s *source) Used(context.Context, sharing.GPUID) (map[compute.ID]int, error) {
	return s.used, s.err
}

func lease(gpu sharing.GPUID, id compute.ID, percent sharing.Percent, a *account) Lease {
	return Lease{GPU: gpu, Grant: compute.Grant{ID: id, Percent: percent}, Account: a}
}

func pacer(s *source) *Pacer { return &Pacer{Source: s, Log: slog.New(slog.DiscardHandler)} }

func TestEachGPUByItself(t *testing.T) {
	a, b, c := &account{}, &account{}, &account{}
	p := pacer(&source{leases: []Lease{lease("GPU-0", "a", 10, a), lease("GPU-0", "b", 50, b), lease("GPU-1", "a", 80, c)}})
	p.step(t.Context(), Every, false, 0)
	for i, want := range map[*account]time.Duration{a: 2 * time.Millisecond, b: 10 * time.Millisecond, c: 16 * time.Millisecond} {
		if i.balance != want || i.refills != 1 {
			t.Errorf("%v after %d refills, want %v", i.balance, i.refills, want)
		}
	}
}

// One that fails costs the others nothing, and gets its own again when it works.
func TestFailingAccount(t *testing.T) {
	a, b := &account{err: sharing.ErrUnavailable}, &account{}
	p := pacer(&source{leases: []Lease{lease("GPU-0", "a", 10, a), lease("GPU-0", "b", 50, b)}})
	p.step(t.Context(), Every, false, 0)
	if a.balance != 0 || a.refills != 0 || b.balance != 10*time.Millisecond {
		t.Errorf("%v and %v", a.balance, b.balance)
	}
	a.err = nil
	p.step(t.Context(), Every, false, 0)
	if a.balance != 2*time.Millisecond || b.balance != 20*time.Millisecond {
		t.Errorf("then %v and %v", a.balance, b.balance)
	}
}

// What the driver says counts more than what was charged; where it says nothing, charges stand.
func TestDriverSetsRight(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool // more than the share is added
	}{"told": {nil, true}, "not told": {errors.New("no"), false}} {
		a := &account{}
		s := &source{leases: []Lease{lease("GPU-0", "a", 10, a)}, used: map[compute.ID]int{"a": 5}, err: tt.err}
		p := pacer(s)
		p.step(t.Context(), Every, false, 0)
		a.spend(100 * time.Millisecond) // twice what was used
		before := a.balance
		p.step(t.Context(), Every, true, UsedEvery)
		if got := a.balance-before > 2*time.Millisecond; got != tt.want {
			t.Errorf("%s: %v added", name, a.balance-before)
		}
	}
}

// What ran is what the driver says; where it says nothing, what was charged since it was last asked.
func TestSettles(t *testing.T) {
	a := &account{}
	s := &source{leases: []Lease{lease("GPU-0", "a", 10, a)}, used: map[compute.ID]int{"a": 5}}
	p := pacer(s)
	p.step(t.Context(), Every, false, 0)
	for _, tt := range []struct {
		err  error
		want time.Duration // in all
	}{{nil, 50 * time.Millisecond}, {errors.New("no"), 150 * time.Millisecond}, {nil, 200 * time.Millisecond}} {
		s.err = tt.err
		before := a.ran
		a.spend(40 * time.Millisecond)
		p.step(t.Context(), Every, false, 0)
		a.spend(60 * time.Millisecond)
		if a.ran != before {
			t.Errorf("%v before the driver was asked", a.ran)
		}
		if p.step(t.Context(), Every, true, UsedEvery); a.ran != tt.want {
			t.Errorf("%v ran, want %v", a.ran, tt.want)
		}
	}
}

// A lease that comes with a history is not judged by it.
func TestHistoryDoesNotCount(t *testing.T) {
	a := &account{charged: time.Hour}
	p := pacer(&source{leases: []Lease{lease("GPU-0", "a", 10, a)}})
	p.step(t.Context(), Every, true, UsedEvery)
	if a.balance != 2*time.Millisecond {
		t.Errorf("%v", a.balance)
	}
}

func TestRun(t *testing.T) {
	a := &account{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- pacer(&source{leases: []Lease{lease("GPU-0", "a", 50, a)}}).Run(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if a.mu.Lock(); a.refills >= 3 && a.balance > 0 {
			a.mu.Unlock()
			break
		}
		a.mu.Unlock()
	}
	cancel()
	if err := <-done; err != nil || a.refills < 3 {
		t.Errorf("%v after %d refills", err, a.refills)
	}
}
