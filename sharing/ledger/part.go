// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// checkParts refuses what another claim has under another name: shares of an instance that is given whole, an instance
// of which shares are given, and a GPU itself while shares of its instances are.
func (l *Ledger) checkParts(page *gpu, f sharing.Fragment) error {
	if f.GPU.IsPart() {
		whole := l.gpus[f.GPU.Device()]
		if whole != nil && (whole.held.claims > whole.held.instances || whole.held.covers(page.facts.Part)) {
			return fmt.Errorf("another claim has the whole instance: %w", sharing.ErrExhausted)
		}
		return nil
	}
	for id, part := range l.gpus {
		if id.Device() != f.GPU || !id.IsPart() || part.held.claims == 0 {
			continue
		}
		if in := part.facts.Part; f.MIG.None() || in.None() || in.Overlaps(f.MIG) {
			return fmt.Errorf("%d claims share the MIG instance %s: %w", part.held.claims, id, sharing.ErrExhausted)
		}
	}
	return nil
}

// covers reports whether an instance is on any of the units.
func (s sum) covers(in sharing.Instance) bool {
	for u := max(0, in.Start); u < min(in.Start+in.Size, maxUnits); u++ {
		if s.units[u] > 0 {
			return true
		}
	}
	return false
}
