// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// withRoom claims, if need be of memory that is lent to others. needs are the requests that are to fit; it is called with the
// lock.
func (r *Runtime) withRoom(ctx context.Context, needs func() []sharing.Request, try func() error) error {
	return r.loans.Claim(ctx, try, func(inUse map[sharing.GPUID]bool) map[sharing.GPUID]sharing.Bytes {
		r.mu.Lock()
		defer r.mu.Unlock()
		requests := needs()
		if len(requests) == 0 {
			return nil
		}
		states := r.gpuStates(requests[0].Profile, nil)
		for i := range states {
			if inUse[states[i].GPU.UUID] {
				states[i].Lent = 0
			}
		}
		back, err := allocator.Recall(states, requests)
		if err != nil {
			return nil // no memory that comes back makes room, and the claim says why
		}
		return back
	})
}
