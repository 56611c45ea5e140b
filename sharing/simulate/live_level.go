// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/allocator/report"
)

// pieces are those in which a GPU is given: by the rules of its pool, as its kubelet counts, and as strongly as the pool demands.
// A profile that allows a lower level is not known here.
func pieces(g gpunode.GPU, offers map[string]int64) (p cluster.Pieces, some bool) {
	parts, whole := given(fit(g, sharing.KindShared)), given(fit(g, sharing.KindWhole))
	counted, all := offers[sharing.ResourceMemory] > 0 || offers[sharing.ResourcePercent] > 0, offers[sharing.ResourceGPU] > 0
	if counted || all { // nothing at all is what a kubelet counts whose agent is away
		parts, whole = parts && counted, whole && all
	}
	switch {
	case parts && whole:
		return cluster.AllPieces, true
	case parts:
		return cluster.PartsAlone, true
	}
	return cluster.WholeAlone, whole
}

// fit says whether the GPU answers a request of the kind, whatever its size.
func fit(g gpunode.GPU, kind sharing.Kind) allocator.Verdict {
	read, r := report.GPU(g, 0), sharing.Request{Kind: kind, GPUs: 1}
	read.GPU.Memory, read.GPU.Reserved = sharing.MinFragment, 0
	if kind == sharing.KindShared {
		r.Memory = sharing.MinFragment
	}
	return allocator.Fit(read, r)
}

// given is false where the GPU is not given so, whatever is free of it.
func given(v allocator.Verdict) bool {
	switch v.Code {
	case allocator.NotShared, allocator.NotWhole, allocator.Unenforced, allocator.BelowPool:
		return false
	default:
		return true
	}
}

// unenforcedGPUs are the GPUs of a node that give no shares because no backend enforces them, by the reason.
type unenforcedGPUs struct {
	reasons []string
	count   []int
}

func (u *unenforcedGPUs) add(g gpunode.GPU) {
	if fit(g, sharing.KindShared).Code != allocator.Unenforced || g.Gives != "" && g.Gives != gpunode.GivesShared {
		return
	}
	i := slices.Index(u.reasons, g.LevelReason)
	if i < 0 {
		i, u.reasons, u.count = len(u.reasons), append(u.reasons, g.LevelReason), append(u.count, 0)
	}
	u.count[i]++
}

func (u *unenforcedGPUs) notes(node string) []string {
	var out []string
	for i, why := range u.reasons {
		if why != "" {
			why = " (" + why + ")"
		}
		out = append(out, fmt.Sprintf("node %s: %d of its GPUs give no shares, because no backend enforces them%s; %s", node, u.count[i], why, sharing.AllowUnenforced))
	}
	return out
}
