// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A user gets no more than the quota, also after a restart; root and other users are not concerned.
func TestUserQuota(t *testing.T) {
	b := newBench(t)
	b.opt.Pool.UserQuota = sharing.UserQuota{Grants: 2, Memory: 20 * sharing.GiB}
	b.still()
	grant := func(uid uint32, req sharing.Request) error {
		p := b.tenant()
		p.UID = uid
		_, err := b.Reserve(t.Context(), p.Peer, "", req)
		return err
	}
	first := b.tenant()
	b.activate(first, "", gib(12))
	refused(t, grant(1000, gib(9)), sharing.ErrExhausted, "9GiB requested, 12GiB used, 20GiB allowed", "uid 1000")
	refused(t, grant(1000, sharing.Request{Kind: sharing.KindWhole, GPUs: 1}), sharing.ErrExhausted,
		"12GiB used, 20GiB allowed")
	refused(t, grant(1000, sharing.Request{Percent: 50, GPUs: 1}), sharing.ErrExhausted, "12GiB used, 20GiB allowed")
	if err := grant(1001, gib(20)); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := grant(root, gib(21)); err != nil {
		t.Errorf("root: %v", err)
	}
	b.activate(b.tenant(), "", gib(8))
	refused(t, grant(1000, gib(1)), sharing.ErrExhausted, "1 grant requested, 2 used, 2 allowed", "uid 1000")
	b.still()
	refused(t, grant(1000, gib(1)), sharing.ErrExhausted, "1 grant requested, 2 used, 2 allowed")
	first.end()
	b.Reconcile(t.Context())
	refused(t, grant(1000, gib(13)), sharing.ErrExhausted, "13GiB requested, 8GiB used")
	if err := grant(1000, gib(12)); err != nil {
		t.Errorf("within what is left: %v", err)
	}
}

// A user's subordinate UIDs count as the user.
func TestUserQuotaCountsSubordinateUIDs(t *testing.T) {
	b := newBench(t)
	b.opt.Pool.UserQuota = sharing.UserQuota{Grants: 2, Memory: 20 * sharing.GiB}
	b.opt.OwnerOf = func(uid uint32) uint32 {
		if uid >= 100_000 && uid < 165_536 {
			return 1000
		}
		return uid
	}
	b.still()
	grant := func(uid uint32, memory int) error {
		p := b.tenant()
		p.UID = uid
		_, err := b.Reserve(t.Context(), p.Peer, "", gib(memory))
		return err
	}
	for _, uid := range []uint32{100_000, 100_001} {
		if err := grant(uid, 1); err != nil {
			t.Error(err)
		}
	}
	for _, uid := range []uint32{1000, 100_002} {
		refused(t, grant(uid, 1), sharing.ErrExhausted, "user quota of uid 1000", "2 used, 2 allowed")
	}
	if err := grant(165_536, 20); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// Pods of the same user do not count.
func TestUserQuotaCountsNoPods(t *testing.T) {
	b := newPodBench(t)
	b.opt.Pool.UserQuota = sharing.UserQuota{Grants: 1}
	b.still()
	b.run(b.app("p", "gpu-memory-gib:10"))
	p := b.tenant()
	if _, err := b.Reserve(t.Context(), p.Peer, "", gib(1)); err != nil {
		t.Error(err)
	}
}
