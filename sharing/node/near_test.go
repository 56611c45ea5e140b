// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// The NUMA node that kubelet chose is known when the container is created. The grant exists since the sandbox. It moves
// there once, and not again when the container restarts.
func TestNearComesAfterTheSandbox(t *testing.T) {
	near := func(numa, count int) []sharing.NUMAAffinity {
		return []sharing.NUMAAffinity{{NUMA: numa, Count: count}}
	}
	tests := map[string]struct {
		amount string
		plan   []int // GPUs that the scheduler planned
		taken  []int // GPUs that are another's until the sandbox is made
		near   []sharing.NUMAAffinity
		first  []int // GPUs of the grant of the sandbox
		want   []int
	}{
		"on another node":    {amount: "gpu:1", near: near(0, 1), first: []int{2}, want: []int{0}},
		"on the node itself": {amount: "gpu:1", near: near(1, 1), first: []int{2}, want: []int{2}},
		"one of two": {amount: "gpu:2", taken: []int{1}, near: near(0, 2), first: []int{0, 2},
			want: []int{0, 1}},
		"planned": {amount: "gpu:1", plan: []int{2}, near: near(0, 1), first: []int{2}, want: []int{2}},
		"another than is planned": {amount: "gpu:1", plan: []int{1}, taken: []int{0, 1}, near: near(0, 1),
			first: []int{2}, want: []int{0}},
		"a node that has none": {amount: "gpu:1", near: near(7, 1), first: []int{2}, want: []int{2}},
		"a node that has one":  {amount: "gpu:2", near: near(1, 2), first: []int{0, 1}, want: []int{0, 1}},
		"ids of two nodes": {amount: "gpu:2", near: append(near(0, 1), near(1, 1)...), first: []int{0, 1},
			want: []int{0, 1}},
		"another number":      {amount: "gpu:2", near: near(1, 1), first: []int{0, 1}, want: []int{0, 1}},
		"no word of the node": {amount: "gpu:1", first: []int{2}, want: []int{2}},
		"nothing of a share": {amount: "gpu-memory-gib:10", plan: []int{1}, taken: []int{1}, near: near(1, 1),
			first: []int{0}, want: []int{0}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newPodBench(t)
			for i := range b.gpus {
				b.gpus[i].NUMA = i / 2 // GPUs 0 and 1 on node 0, GPU 2 on node 1
			}
			b.start()
			ids := func(indexes []int) (out []sharing.GPUID) {
				for _, i := range indexes {
					out = append(out, b.gpus[i].UUID)
				}
				return out
			}
			var others []string
			for _, i := range tc.taken {
				other := b.app(string(rune('a'+i)), "gpu:1")
				other.Advice.GPUs = ids([]int{i})
				if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{other}); err != nil {
					t.Fatal(err)
				}
				others = append(others, other.Ref.PodUID)
			}
			ask := b.app("p", tc.amount)
			ask.Advice.GPUs = ids(tc.plan)
			if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
				t.Fatal(err)
			}
			on := func() (out []sharing.GPUID) {
				for _, f := range b.grant(ask).Placement {
					out = append(out, f.GPU.UUID)
				}
				slices.Sort(out)
				return out
			}
			id := b.grant(ask).ID
			if got := on(); !slices.Equal(got, ids(tc.first)) {
				t.Fatalf("reserved %v with the sandbox, want %v", got, ids(tc.first))
			}
			for _, uid := range others {
				b.PodRemoved(uid)
			}
			b.eventually("the others' end", func() bool { return len(b.State(t.Context()).Grants) == 1 })
			ask.Advice.NUMA = tc.near
			c := b.run(ask)
			if got := on(); !slices.Equal(got, ids(tc.want)) || b.grant(ask).ID != id {
				t.Errorf("on %v as grant %s, want %v as %s", got, b.grant(ask).ID, ids(tc.want), id)
			}
			b.check()
			c.remove()
			// A container that starts again comes back where it was.
			for n := range 2 {
				ask.Advice.NUMA = near(n, len(tc.want))
				b.run(ask).remove()
				if got := on(); !slices.Equal(got, ids(tc.want)) {
					t.Errorf("started again on %v, want %v", got, ids(tc.want))
				}
			}
		})
	}
}
