// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextsize

import "github.com/kerf-gpu/kerf/sharing"

// Size is what one context is taken to need: the measured size, or else the bound of its model.
type Size struct {
	Bytes    sharing.Bytes
	Measured bool
}

// Of is the size for a GPU of the kind, given what was measured of it.
func Of(kind Kind, measured sharing.Bytes, known bool) Size {
	if known {
		return Size{Bytes: measured, Measured: true}
	}
	return Size{Bytes: Bound(kind.Model)}
}
