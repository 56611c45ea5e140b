// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// EndClaims ends the grants of ResourceClaims, by UID, once nothing uses them. It returns when that is on disk. A claim
// without a grant is no error.
func (r *Runtime) EndClaims(uids []string) error {
	err := r.Store.Update(func(l *ledger.Ledger) error {
		for _, g := range l.Grants() {
			if slices.ContainsFunc(g.Requests, func(a sharing.ResourceRequest) bool {
				return a.Claim != "" && slices.Contains(uids, a.ClaimUID())
			}) {
				l.Withdraw(g.ID, ledger.ClaimEnded)
			}
		}
		return nil
	})
	r.Wake()
	return err
}
