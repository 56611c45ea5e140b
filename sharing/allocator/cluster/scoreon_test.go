// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// TestScoreOn: the score of the GPU that Score takes is the score, and no other GPU has a higher one. ScoreOn leaves
// the node as it is.
func TestScoreOn(t *testing.T) {
	nodes, requests := mix(rand.New(rand.NewPCG(5, 6)), 400)
	k := cluster.NewKerf(cluster.NewWorkload(requests), nodes)
	c, lower := cluster.New(nodes, k), 0
	for _, r := range requests {
		for i := range c.Len() {
			n := c.Node(i)
			if s := n.Resolve(r.Shape); r.GPUs == 1 && cluster.Evaluate(n, r) == cluster.Fits {
				best, at := k.Score(n, s)
				for g := range n.GPUs {
					if !cluster.HasCapacity(n, g, s) {
						continue
					}
					switch score := k.ScoreOn(n, s, g); {
					case g == at && score != best, score > best:
						t.Fatalf("node %s, %+v: score %d, on GPU %d %d", n.Name, s, best, g, score)
					case score < best:
						lower++
					}
				}
			}
		}
		if p, ok := c.Choose(r); ok {
			if err := c.Take(r, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lower == 0 {
		t.Error("all GPUs had equal scores")
	}
}
