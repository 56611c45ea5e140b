// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// TestScoreOn: the score of the GPUs that Score takes is the score, and no other GPU has a higher one. ScoreOn leaves
// the node as it is.
func TestScoreOn(t *testing.T) {
	nodes, requests := mix(rand.New(rand.NewPCG(5, 6)), 400)
	k := cluster.NewKerf(cluster.NewWorkload(requests), nodes)
	c, lower, several := cluster.New(nodes, k), 0, 0
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
			n := c.Node(p.Node)
			if best, _ := k.Score(n, n.Resolve(r.Shape)); r.GPUs > 1 {
				several++
				if score := k.ScoreOn(n, n.Resolve(r.Shape), p.GPUs...); score != best {
					t.Fatalf("node %s, %+v: score %d, on GPUs %v %d", n.Name, r.Shape, best, p.GPUs, score)
				}
			}
			if err := c.Take(r, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lower == 0 || several == 0 {
		t.Errorf("%d GPUs had a lower score; %d requests were for several GPUs", lower, several)
	}
}

// TestScoreInstanceOn: the score of the place that Score takes is the score, and no other place has a higher one.
func TestScoreInstanceOn(t *testing.T) {
	nodes := migNodes(t, 2, 2)
	names := []string{"1g.10gb", "2g.20gb", "3g.40gb"}
	k := cluster.NewKerf(cluster.NewWorkload([]cluster.Request{profile(names[0]), profile(names[1]),
		profile(names[2])}), nodes)
	c, lower, draw := cluster.New(nodes, k), 0, rand.New(rand.NewPCG(3, 4))
	for range 24 {
		r := profile(names[draw.IntN(3)])
		p, ok := c.Choose(r)
		if !ok {
			continue
		}
		n := c.Node(p.Node)
		s := n.Resolve(r.Shape)
		best, at := k.Score(n, s)
		if score, ok := k.ScoreInstanceOn(n, s, at, k.Start(n, at, profileID(t, n, r))); !ok || score != best {
			t.Fatalf("%s at its best place: %d, %t; Score says %d", r.Profile, score, ok, best)
		}
		for g := range n.GPUs {
			for start := range 9 {
				if score, ok := k.ScoreInstanceOn(n, s, g, start); ok && score > best {
					t.Fatalf("%s on GPU %d at %d: %d, the best is %d", r.Profile, g, start, score, best)
				} else if ok && score < best {
					lower++
				}
			}
		}
		if err := c.Take(r, p); err != nil {
			t.Fatal(err)
		}
	}
	if lower == 0 {
		t.Error("all places had equal scores")
	}
}

func profileID(t *testing.T, n *cluster.Node, r cluster.Request) int {
	t.Helper()
	p, ok := n.Instance(r.Shape)
	if !ok {
		t.Fatalf("no profile %s", r.Profile)
	}
	return p.ID
}
