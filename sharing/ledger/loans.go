// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Burst is what an attachment has of one GPU, and what it uses.
type Burst struct {
	ID GrantID
	// Memory is guaranteed, Burst is its burst memory, and MaxBurst the maximum of Burst.
	Memory, Burst, MaxBurst sharing.Bytes
	// Used is the memory of its processes. Known is false if it is unknown: all burst memory then counts as used.
	Used  sharing.Bytes
	Known bool
}

// Idle is the unused part of Burst that can be taken back, in whole MiB of use.
func (l Burst) Idle() sharing.Bytes {
	if !l.Known {
		return 0
	}
	used := l.Used.SubFloor(l.Memory)
	if rest := used % sharing.MiB; rest != 0 {
		used += sharing.MiB - rest
	}
	return l.Burst.SubFloor(used)
}

// Recall decides how much burst memory each grant keeps when one GPU needs need bytes. It takes idle memory, from the
// grant with the most of it first; of equals, from the lower id. It never takes used memory. short is how much of need
// is not idle: it comes back only when its users free it.
func Recall(loans []Burst, need sharing.Bytes) (keep []sharing.Bytes, short sharing.Bytes) {
	order := make([]int, len(loans))
	keep = make([]sharing.Bytes, len(loans))
	for i := range loans {
		order[i], keep[i] = i, loans[i].Burst
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(loans[b].Idle(), loans[a].Idle()), cmp.Compare(loans[a].ID, loans[b].ID))
	})
	for _, i := range order {
		taken := min(need, loans[i].Idle())
		keep[i] -= taken // at most Burst
		need -= taken
	}
	return keep, need
}

// Shares divides the free memory of one GPU among attachments with these maximum amounts of burst memory. It divides
// evenly, in whole MiB. What one attachment cannot take, the others get.
func Shares(free sharing.Bytes, most []sharing.Bytes) []sharing.Bytes {
	out := make([]sharing.Bytes, len(most))
	left := free / sharing.MiB
	for left > 0 {
		var open []int
		for i := range most {
			if out[i] < most[i]/sharing.MiB {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			break
		}
		each := max(left/sharing.Bytes(len(open)), 1)
		for _, i := range open {
			more := min(each, left, most[i]/sharing.MiB-out[i])
			out[i] += more
			left -= more
		}
	}
	for i := range out {
		out[i] *= sharing.MiB // at most most[i]
	}
	return out
}
