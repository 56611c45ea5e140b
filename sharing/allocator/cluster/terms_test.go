// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// The terms add up to the score, whatever the node and the shape, but for the step that it is rounded down to.
func TestTermsAddUp(t *testing.T) {
	const scoreUnit, step = 100_000, 80
	nodes := migNodes(t, 2, 2)
	var sample []cluster.Request
	for share, name := range map[cluster.Milli]string{125: "1g.10gb", 250: "2g.20gb", 500: "3g.40gb"} {
		r := profile(name)
		r.Share = share // as the nodes book it
		sample = append(sample, r)
	}
	for i := range 4 {
		nodes = append(nodes, cluster.Node{Name: string(rune('p' + i)), CPU: 32000, Model: "A",
			GPUs: []cluster.Milli{1000, 1000, 1000, 1000}})
	}
	for _, share := range []cluster.Milli{130, 230, 390, 470, 550, 640, 810} {
		for range 20 {
			sample = append(sample, cluster.Request{Shape: cluster.Shape{CPU: 4000, GPUs: 1, Share: share,
				Models: "A"}})
		}
	}
	sample = append(sample, cluster.Request{Shape: cluster.Shape{CPU: 8000, GPUs: 4, Share: 1000}})
	k := cluster.NewKerf(cluster.NewWorkload(sample), nodes)
	rng := rand.New(rand.NewPCG(1, 2))
	c := cluster.New(nodes, k)
	named := map[string]int{}
	for range 300 {
		r := sample[rng.IntN(len(sample))]
		for i := range c.Len() {
			n := c.Node(i)
			if cluster.Evaluate(n, r) != cluster.Fits {
				continue
			}
			shape := r.Shape
			score, _ := k.Score(n, shape)
			sum := int64(0)
			for _, term := range k.Terms(n, shape) {
				sum += term.Value
				if term.Value != 0 {
					named[term.Name]++
				}
			}
			rest, most := sum-score/scoreUnit, int64(step)
			if n.Table != nil { // it is not rounded, but counts finer than thousandths
				rest, most = rest+4, 8
			}
			if rest < 0 || rest >= most {
				t.Fatalf("node %s, %+v: terms add up to %d, the score is %d", n.Name, shape, sum, score)
			}
		}
		if p, ok := c.Choose(r); ok && rng.IntN(3) > 0 {
			if err := c.Take(r, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"fragmentation", "hole", "instance", "starts", "price"} {
		if named[name] == 0 {
			t.Errorf("%s was always 0: %v", name, named)
		}
	}
}
