// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"math/rand" //nolint:depguard // its sequence is that of the published experiment
	"slices"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Inflate gives the pods in the order in which they arrive: shuffled by the seed, then drawn again until they
// ask for times the capacity, or some left out where they ask for more. The sequence is that of the published
// FGD experiment, number by number.
func Inflate(pods []Pod, capacity cluster.Milli, times float64, seed int64) []Pod {
	//nolint:gosec // an experiment is repeated by its seed; nothing secret is drawn
	r := rand.New(rand.NewSource(seed))
	// The published experiment draws one number before it shuffles.
	r.Int()
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	out := slices.Clone(sorted)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	demand := cluster.Milli(0)
	for i := range out {
		demand += out[i].Demand()
	}
	target := cluster.Milli(float64(capacity) * times)
	if demand == 0 {
		return out
	}
	for demand > target {
		i := r.Intn(len(out))
		demand -= out[i].Demand()
		out = slices.Delete(out, i, i+1)
	}
	for {
		p := sorted[r.Intn(len(sorted))]
		if demand+p.each() > target {
			return out
		}
		out, demand = append(out, p), demand+p.Demand()
	}
}

// Order is the nodes in an order of their own for each seed, since ties are decided by it.
func Order(nodes []cluster.Node, seed int64) []cluster.Node {
	//nolint:gosec // as above
	perm := rand.New(rand.NewSource(seed ^ 0x6b657266)).Perm(len(nodes))
	out := make([]cluster.Node, len(nodes))
	for i, j := range perm {
		out[j] = nodes[i]
	}
	return out
}
