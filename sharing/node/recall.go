// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// withRoom tries to claim, and where that fails for want of room while memory is lent, tries once more after
// what is needed and idle was taken back. needs are the requests that are to fit; it is called with the lock.
func (r *Runtime) withRoom(ctx context.Context, needs func() []sharing.Request, try func() error) error {
	err := try()
	if noFit := new(allocator.NoFit); !errors.As(err, &noFit) || noFit.Never || !r.lends() {
		return err
	}
	r.lending.Lock()
	defer r.lending.Unlock()
	r.makeRoom(ctx, needs)
	return try()
}

// lends reports whether anything is lent.
func (r *Runtime) lends() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.ledger.GPUs(), func(v ledger.View) bool { return v.LentMemory > 0 })
}

// makeRoom takes back what is lent where the requests would then fit. Where too much of it is in use it is tried
// on other GPUs; what is idle there is taken back all the same, and nothing is lent there until the claim has had
// the time to come again. The caller holds lending.
func (r *Runtime) makeRoom(ctx context.Context, needs func() []sharing.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lendDeadline)
	defer cancel()
	inUse := map[sharing.GPUID]bool{}
	for ctx.Err() == nil {
		r.mu.Lock()
		requests := needs()
		if len(requests) == 0 {
			r.mu.Unlock()
			return
		}
		states := r.gpuStates(requests[0].Profile, nil)
		for i := range states {
			if inUse[states[i].GPU.UUID] {
				states[i].Lent = 0
			}
		}
		back, err := allocator.Recall(states, requests)
		r.mu.Unlock()
		if err != nil || len(back) == 0 {
			return
		}
		enough := true
		for _, gpu := range slices.Sorted(maps.Keys(back)) {
			if r.recall(ctx, gpu, back[gpu]) > 0 {
				inUse[gpu], enough = true, false
			}
		}
		if enough {
			return
		}
	}
}

// recall takes back so much of what is lent on the GPU, as far as it is idle, and returns what it is short of.
// The caller holds lending.
func (r *Runtime) recall(ctx context.Context, gpu sharing.GPUID, need sharing.Bytes) (short sharing.Bytes) {
	if need == 0 {
		return 0
	}
	r.mu.Lock()
	loans := r.loans(gpu)
	r.mu.Unlock()
	for i := range loans {
		loans[i] = r.withUse(ctx, loans[i], gpu)
	}
	keep, short := ledger.Recall(loans, need)
	for i, l := range loans {
		if keep[i] == l.Lent {
			continue
		}
		if err := r.setLoan(ctx, l.ID, gpu, keep[i]); err != nil {
			r.log.Info("lent memory not taken back", "claim", l.ID, "gpu", string(gpu), "error", err.Error())
			short += l.Lent - keep[i] // no more than need
			continue
		}
		r.log.Info("lent memory taken back for a claim", "claim", l.ID, "gpu", string(gpu), "lent", l.Lent.String(), "left", keep[i].String())
	}
	if short > 0 {
		r.mu.Lock()
		r.wanted[gpu] = time.Now().Add(wantedFor)
		r.mu.Unlock()
	}
	return short
}
