// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// sharersOf are the grants that have a cap in common with this one, its own among them.
func sharersOf(l store.Reader, id ledger.GrantID) []ledger.Grant {
	var out []ledger.Grant
	for _, one := range l.SharedCapGrants(id) {
		g, _ := l.Get(one)
		out = append(out, g)
	}
	return out
}

// speaker is the attachment that stands for all that share a cap where they are looked at as one: the first of them.
func speaker(l store.Reader, g ledger.Grant) ledger.GrantID {
	if g.SharedCap != nil {
		for _, o := range sharersOf(l, g.ID) {
			if o.Active != nil {
				return o.ID
			}
		}
	}
	return g.ID
}

// jointWhy says of a grant that shares a cap who does and how much it is; it is empty for others.
func jointWhy(l store.Reader, g ledger.Grant) string {
	if g.SharedCap == nil {
		return ""
	}
	var names []string
	for _, o := range sharersOf(l, g.ID) {
		names = append(names, o.Owner.Container)
	}
	slices.Sort(names)
	memory, _ := g.SharedCap.Total()
	return fmt.Sprintf("one cap of %s for the containers %s", memory, strings.Join(names, ", "))
}
