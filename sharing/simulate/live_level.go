// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// pieces are those in which a GPU is given: by the rules of its pool, as its kubelet counts, and as strongly as the pool demands.
func pieces(g gpunode.GPU, offers map[string]int64) (p cluster.Pieces, some bool) {
	parts := (g.Gives == "" || g.Gives == gpunode.GivesShared) && levelOf(g).AtLeast(leastOf(g))
	whole := g.Gives == "" || g.Gives == gpunode.GivesWhole
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

// leastOf is the level that shares of the GPU must have. A profile that allows less is not known here.
func leastOf(g gpunode.GPU) sharing.Level {
	least, err := sharing.ParseLevel("minEnforcement", g.MinEnforcement)
	if err != nil {
		least = sharing.LevelUnknown
	}
	return sharing.LeastOfShare(least)
}

// levelOf is how strongly shares of the GPU can be held.
func levelOf(g gpunode.GPU) sharing.Level {
	return max(sharing.LevelNone, sharing.ShareLevel(sharing.ParseLevels(g.Levels)))
}

// unenforcedGPUs are the GPUs of a node that give no shares because no backend enforces them, by the reason.
type unenforcedGPUs struct {
	reasons []string
	count   []int
}

func (u *unenforcedGPUs) add(g gpunode.GPU) {
	if g.MinEnforcement != "" || g.Gives != "" && g.Gives != gpunode.GivesShared || levelOf(g).AtLeast(leastOf(g)) {
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
