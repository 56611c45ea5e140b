// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// ownerOf is the user to whom a UID belongs.
func (o *Options) ownerOf(uid uint32) uint32 {
	if o.OwnerOf == nil {
		return uid
	}
	return o.OwnerOf(uid)
}

// usedBy is what a user has by grants of no pod, with those of the subordinate UIDs.
func usedBy(grants []ledger.Grant, uid uint32, ownerOf func(uint32) uint32) (used sharing.UserUse) {
	for _, g := range grants {
		if !g.Claim.Owner.Pod() && ownerOf(g.Claim.Owner.UID) == uid {
			memory, _ := g.Claim.Placement.Total()
			used = used.With(memory)
		}
	}
	return used
}

// withinQuota returns nil if the pool lets a user have one more grant of so much memory. Root has no quota. It needs the
// lock.
func (r *Runtime) withinQuota(uid uint32, memory sharing.Bytes) error {
	if uid == 0 || r.settings.Pool().UserQuota == (sharing.UserQuota{}) {
		return nil
	}
	owner := r.opt.ownerOf(uid)
	return r.settings.Pool().UserQuota.Check(owner, usedBy(r.ledger.Grants(), owner, r.opt.ownerOf), memory)
}
