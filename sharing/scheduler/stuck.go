// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// Stuck is a pod that its node has no room for, so that it never starts there.
type Stuck struct {
	UID, Namespace, Name string
	Node                 string
	// For is how long that is known, and Reason what the node says is missing.
	For    time.Duration
	Reason string
}

// Stuck are the pods, of those that a scheduler's plan bound, that their nodes have reported without a break for at least
// after to have no room for, sorted. How long is known only as far as this is asked again and again: what a node said
// between two calls is not seen. A node that is not to be believed begins anew, and a pod that Evicted was told of is left
// out.
func (x *inventory) Stuck(after time.Duration, now time.Time) []Stuck {
	var out []Stuck
	for uid, p := range x.pods {
		n := x.nodes[p.node]
		reason, stuck := "", false
		if _, ok := trusted(n, now); ok {
			reason, stuck = n.report.unplaced[uid]
		}
		if !stuck || !p.bound || p.gone() || p.evicted || len(p.plan) == 0 || n.claimed(p) {
			p.stuckAt = time.Time{}
			continue
		}
		if p.stuckAt.IsZero() {
			p.stuckAt = now
		}
		if waited := now.Sub(p.stuckAt); waited >= after {
			out = append(out, Stuck{UID: uid, Namespace: p.want.Namespace, Name: p.want.Name, Node: p.node, For: waited, Reason: reason})
		}
	}
	slices.SortFunc(out, func(a, b Stuck) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Evicted tells that a pod that was stuck was made to leave.
func (x *inventory) Evicted(uid string) {
	if p := x.pods[uid]; p != nil {
		p.evicted = true
	}
}
