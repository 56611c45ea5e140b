// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Charge is what one grant holds of a GPU.
type Charge struct {
	// Bytes is all that is charged to the grant. It and the parts below mean nothing unless Known.
	Bytes sharing.Bytes
	// Ended is the part whose processes have ended, and Inferred the part of that which is charged by inference alone.
	Ended, Inferred sharing.Bytes
	Known           bool
}

// ChargeOf adds up what grants hold together. It is not known if an entry of theirs is without an amount, or if one that is
// unclear may be theirs.
func ChargeOf(lines []Line, grants ...Owner) Charge {
	c := Charge{Known: true}
	for _, l := range lines {
		mine, maybe := (l.Kind == Running || l.Kind == Ended) && slices.Contains(grants, l.Owner), l.May(grants...)
		if !mine && !maybe {
			continue
		}
		sum, err := c.Bytes.Add(l.Bytes)
		if maybe || !l.Known || err != nil {
			return Charge{}
		}
		c.Bytes = sum
		if l.Kind == Ended {
			c.Ended += l.Bytes // a part of the sum
		}
		if l.Inferred {
			c.Inferred += l.Bytes // as above
		}
	}
	return c
}

// Nobody adds up what is unattributed, as far as its amounts are told.
func Nobody(lines []Line) sharing.Bytes {
	var sum sharing.Bytes
	for _, l := range lines {
		if more, err := sum.Add(l.Bytes); l.Kind == Unattributed && l.Known && err == nil {
			sum = more
		}
	}
	return sum
}
