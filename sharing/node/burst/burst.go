// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package burst gives the free memory of GPUs to grants that may burst, and takes it back for grants.
package burst

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

const (
	// every is the interval of checks if nothing changes, and gap the least time between two checks.
	every = time.Second
	gap   = 50 * time.Millisecond
	// deadline bounds one check of one GPU, and how long a grant waits for burst memory: a container runtime gives its
	// plugins two seconds.
	deadline = time.Second
	// wantedFor is how long a GPU gives no burst memory after a request did not fit because burst memory was in use. It
	// is long enough for kubelet to try again.
	wantedFor = time.Minute
)

// Node is the node whose free memory is given as burst memory. Its methods take the node's locks.
type Node interface {
	// GPUs are all GPUs. known is false while the burst memory is unknown.
	GPUs() (gpus []ledger.View, known bool)
	// Bursts is a GPU with its loans, by id: of grants that have, or may have, burst memory there. Their usage is not
	// set.
	Bursts(gpu sharing.GPURef) (ledger.View, []ledger.Burst)
	// Usage is what a grant uses of a GPU. known is false if that cannot be read.
	Usage(ctx context.Context, id ledger.GrantID, gpu sharing.GPURef) (used sharing.Bytes, known bool)
	// SetBurst changes a grant's burst memory on a GPU, and its cap with it. On an error both stay as they were.
	SetBurst(ctx context.Context, id ledger.GrantID, gpu sharing.GPURef, lent sharing.Bytes) error
}

// Manager changes burst memory, one change at a time. What it takes back for a grant goes to no other grant before that
// one has it.
type Manager struct {
	Log  *slog.Logger
	Node Node
	// Changed returns a channel that is closed at the next change of the node. Announce reports one.
	Changed  func() <-chan struct{}
	Announce func()
	Now      func() time.Time

	// mu is taken before the locks of Node.
	mu sync.Mutex
	// wanted is the time until which a GPU gives no burst memory, because a request waits for it.
	wanted map[sharing.GPURef]time.Time
}

// Run balances loans at each change of the node, and every second. It ends with ctx.
func (l *Manager) Run(ctx context.Context) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		changed := l.Changed() // of before the check, so that none is missed
		l.Balance(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gap):
		}
	}
}

// Balance brings every loan to what it should be: the free memory of a GPU is divided evenly among the grants that may
// burst there. A loan that has become too large shrinks by its idle part. If a request waits for burst memory, none is
// given, and every loan shrinks to its used part.
func (l *Manager) Balance(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gpus, known := l.Node.GPUs()
	if !known {
		return
	}
	changed := false
	for _, v := range gpus {
		changed = l.balance(ctx, v.GPU.Ref()) || changed
	}
	if changed {
		l.Announce()
	}
}

// balance is Balance for one GPU. It reports whether a loan changed. It needs the lock.
func (l *Manager) balance(ctx context.Context, gpu sharing.GPURef) (changed bool) {
	v, loans := l.Node.Bursts(gpu)
	if len(loans) == 0 || v.GPU.Health != sharing.HealthOK || v.GPU.MIG {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	shares := shares(v, loans, l.Now().Before(l.wanted[gpu]))
	for i, one := range loans {
		if one.Burst <= shares[i] {
			continue
		}
		one = l.measured(ctx, one, gpu)
		if back := min(one.Burst-shares[i], one.Idle()); back > 0 {
			changed = l.Node.SetBurst(ctx, one.ID, gpu, one.Burst-back) == nil || changed
		}
	}
	for i, one := range loans {
		if shares[i] <= one.Burst {
			continue
		}
		v, _ = l.Node.Bursts(gpu)
		if more := min(shares[i]-one.Burst, v.FreeMemory/sharing.MiB*sharing.MiB); more > 0 && ctx.Err() == nil {
			changed = l.Node.SetBurst(ctx, one.ID, gpu, one.Burst+more) == nil || changed
		}
	}
	return changed
}

// shares are what each loan should be. wanted is true if a request waits for burst memory.
func shares(v ledger.View, loans []ledger.Burst, wanted bool) []sharing.Bytes {
	free, others, most := v.GPU.Usable().SubFloor(v.GrantedMemory), v.BurstMemory, make([]sharing.Bytes, len(loans))
	for i, one := range loans {
		others, most[i] = others.SubFloor(one.Burst), one.MaxBurst
	}
	if free = free.SubFloor(others); wanted {
		free = 0
	}
	return ledger.Shares(free, most)
}

// measured is a loan with its usage.
func (l *Manager) measured(ctx context.Context, one ledger.Burst, gpu sharing.GPURef) ledger.Burst {
	one.Used, one.Known = l.Node.Usage(ctx, one.ID, gpu)
	return one
}

// Reserve tries to reserve a grant. If that fails for lack of memory while burst memory is given, it takes back what is
// missing and idle, and tries once more. The result missing is how much has to come back on each GPU, without the GPUs
// that have too much in use.
func (l *Manager) Reserve(ctx context.Context, try func() error,
	missing func(inUse map[sharing.GPURef]bool) map[sharing.GPURef]sharing.Bytes) error {
	err := try()
	if noFit := new(allocator.NoFit); !errors.As(err, &noFit) || noFit.Never || !l.lends() {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeRoom(ctx, missing)
	return try()
}

// lends reports whether any grant has burst memory.
func (l *Manager) lends() bool {
	gpus, _ := l.Node.GPUs()
	return slices.ContainsFunc(gpus, func(v ledger.View) bool { return v.BurstMemory > 0 })
}

// makeRoom takes back what is missing. If too much of that is in use on a GPU, it tries other GPUs. It takes back what
// is idle there all the same, and lends nothing there until the grant has had the time to come again. It needs the
// lock.
func (l *Manager) makeRoom(ctx context.Context,
	missing func(inUse map[sharing.GPURef]bool) map[sharing.GPURef]sharing.Bytes) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	inUse := map[sharing.GPURef]bool{}
	for ctx.Err() == nil {
		back, enough := missing(inUse), true
		for _, gpu := range slices.SortedFunc(maps.Keys(back), sharing.GPURef.Compare) {
			if l.recall(ctx, gpu, back[gpu]) > 0 {
				inUse[gpu], enough = true, false
			}
		}
		if enough {
			return
		}
	}
}

// Recall takes back so much on each GPU as is idle, and then calls book. It gives no burst memory meanwhile.
func (l *Manager) Recall(ctx context.Context, missing func() map[sharing.GPURef]sharing.Bytes,
	book func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	back := missing()
	for _, gpu := range slices.SortedFunc(maps.Keys(back), sharing.GPURef.Compare) {
		l.recall(ctx, gpu, back[gpu])
	}
	return book()
}

// recall takes back the needed burst memory of a GPU, as far as it is idle, and returns what is still missing. It needs
// the lock.
func (l *Manager) recall(ctx context.Context, gpu sharing.GPURef, need sharing.Bytes) (short sharing.Bytes) {
	if need == 0 {
		return 0
	}
	_, loans := l.Node.Bursts(gpu)
	for i := range loans {
		loans[i] = l.measured(ctx, loans[i], gpu)
	}
	keep, short := ledger.Recall(loans, need)
	for i, one := range loans {
		if keep[i] == one.Burst {
			continue
		}
		if err := l.Node.SetBurst(ctx, one.ID, gpu, keep[i]); err != nil {
			l.Log.Info("failed to reclaim burst memory", "grant", one.ID, "gpu", gpu.String(), "error", err.Error())
			short += one.Burst - keep[i] // no more than need
			continue
		}
		l.Log.Info("reclaimed burst memory for a grant", "grant", one.ID, "gpu", gpu.String(), "burst",
			one.Burst.String(), "left", keep[i].String())
	}
	if short > 0 {
		if l.wanted == nil {
			l.wanted = map[sharing.GPURef]time.Time{}
		}
		l.wanted[gpu] = l.Now().Add(wantedFor)
	}
	return short
}
