// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/place"
)

// withRoom claims, if need be of memory that is lent to others. needs are the requests that are to fit; it is called with the
// lock.
func (r *Runtime) withRoom(ctx context.Context, needs func(*place.Node) []sharing.Request, try func() error) error {
	return r.loans.Claim(ctx, try, func(inUse map[sharing.GPUID]bool) map[sharing.GPUID]sharing.Bytes {
		r.mu.Lock()
		defer r.mu.Unlock()
		at := r.placing()
		return at.Recall(needs(at), inUse)
	})
}
