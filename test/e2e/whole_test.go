// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
)

// Whole GPUs belong to one pod: the container sees exactly those, at their size, and no share lands there, nor whole
// GPUs where shares are.
func TestWholeGPUs(t *testing.T) {
	e := beginWithAgent(t)
	part := e.create(one("part", gibs(2), hold))
	part.running()
	two := e.create(one("two", wholeGPUs(2), hold))
	five := e.create(one("five", wholeGPUs(5), hold))
	two.running()
	five.running()
	taken := map[string]string{}
	for name, p := range map[string]struct {
		*pod
		n int
	}{"two": {two, 2}, "five": {five, 5}} {
		g := e.wantHeld(p.pod, "main", want{gpus: p.n, memory: e.node.gpus(t)[0].shareOf(100), percent: 100,
			level: "exclusive"})
		if !g.Whole {
			t.Errorf("%s: %+v", name, g)
		}
		for _, f := range g.Shares {
			if other := taken[f.GPU]; other != "" {
				t.Errorf("GPU %s is of %s and of %s", f.GPU, name, other)
			}
			taken[f.GPU] = name
		}
	}
	if gpu := e.wantHeld(part, "main", share(2*gib, 0)).Shares[0].GPU; taken[gpu] != "" {
		t.Errorf("GPU %s carries a fraction, and is of %s", gpu, taken[gpu])
	}
	// 77 GiB are left of the one GPU that carries a fraction.
	large := e.create(one("large", gibs(70), hold))
	large.running()
	if gpu := e.wantHeld(large, "main", share(70*gib, 0)).Shares[0].GPU; taken[gpu] != "" {
		t.Errorf("GPU %s is of %s, and carries a fraction", gpu, taken[gpu])
	}
	// kubelet counts 632 GiB and 8 GPUs, each for itself; what fits neither way waits on the node.
	small, whole := e.create(one("small", gibs(10), hold)), e.create(one("whole", wholeGPUs(1), hold))
	small.event("not enough free for 10GiB of one GPU", "GPU 0", "kubelet tries again")
	whole.event("not enough free for 1 whole GPU", "kubelet tries again")
	two.delete()
	two.released()
	small.running()
	whole.running()
	e.wantHeld(small, "main", share(10*gib, 0))
	e.wantHeld(whole, "main", want{gpus: 1, memory: e.node.gpus(t)[0].shareOf(100), percent: 100, level: "exclusive"})
}
