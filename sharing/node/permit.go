// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// permitPod reports whether the pod may have what the claims that were just made for it give, together with what it had
// before, by the profiles' bounds. It needs the lock.
func (r *Runtime) permitPod(uid string, made []ledger.ClaimID) error {
	totals, asked := map[string]sharing.Bytes{}, map[string]bool{}
	for _, g := range r.ledger.Grants() {
		if g.Claim.Owner.PodUID != uid {
			continue
		}
		profile := g.Claim.Request.Profile
		memory, _ := g.Claim.Placement.Total()
		sum, err := totals[profile].Add(memory)
		if err != nil {
			return err
		}
		totals[profile] = sum
		asked[profile] = asked[profile] || slices.Contains(made, g.Claim.ID)
	}
	var errs []error
	for _, profile := range slices.Sorted(maps.Keys(totals)) {
		if asked[profile] {
			errs = append(errs, r.settings.Config().PermitMemory(profile, totals[profile]))
		}
	}
	return errors.Join(errs...)
}
