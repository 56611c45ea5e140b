// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import "sync/atomic"

// RejectManaged decides whether programs may allocate managed memory from now on. What they have allocated stays.
func (r *Region) RejectManaged(reject bool) {
	word := uint64(0)
	if reject {
		word = 1
	}
	atomic.StoreUint64(&r.limits.rejectsManaged, word)
}

// RejectsManaged reports what RejectManaged decided.
func (r *Region) RejectsManaged() bool { return atomic.LoadUint64(&r.limits.rejectsManaged) != 0 }
