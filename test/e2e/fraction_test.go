// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"
)

// The agent comes up from the manifests as they are, and sees the node's GPUs.
func TestAgentBecomesReady(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	s, gpus := e.picture(), e.node.gpus(t)
	if len(s.GPUs) != len(gpus) {
		t.Fatalf("the agent sees %d GPUs, the driver has %d", len(s.GPUs), len(gpus))
	}
	for i, g := range s.GPUs {
		if g.UUID != gpus[i].UUID || g.Health != "healthy" {
			t.Errorf("GPU %d: %+v, the driver has %+v", i, g, gpus[i])
		}
	}
}

// kubelet offers what the node can give: whole GiB of each GPU, percent, and the GPUs themselves.
func TestNodeCapacity(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	want := map[string]int64{}
	for _, g := range e.node.gpus(t) {
		want["kerf.dev/gpu-memory-gib"] += int64((g.Memory - g.Reserved) / gib)
		want["kerf.dev/gpu-percent"] += 100
		want["kerf.dev/gpu"]++
	}
	for resource, n := range want {
		if all, usable, err := e.capacity(resource); err != nil || all != n || usable != n {
			t.Errorf("%s: capacity %d, allocatable %d, %v; want %d", resource, all, usable, err, n)
		}
	}
}

// A container sees one GPU at the size that it asked for, and gets no more. Its neighbor on the same GPU does not feel
// that it tries: it goes on, keeps its memory, and may use the rest of its grant.
func TestFraction(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	neighbour := e.create(one("neighbour", gibs(10), "exec gpuload --json --alloc 8GiB --hold 1h"))
	neighbour.running()
	if l := neighbour.loads("main", 1)[0]; l.Error != nil || l.Allocated != 8*gib {
		t.Fatalf("the neighbour: %v", l)
	}
	g := e.grantOf(neighbour, "main")
	if g.Memory != 10*gib || g.Level != "driver" || g.ContainerID != neighbour.id("main") || len(g.Shares) != 1 {
		t.Fatalf("grant of the neighbour: %+v", g)
	}
	gpu := g.Shares[0].GPU
	caps := neighbour.caps("main")
	if caps[gpu] != 10*gib {
		t.Errorf("the driver holds %v for it, want 10 GiB on %s", caps, gpu)
	}
	before := neighbour.inDriver("main")
	if len(before) != 1 || before[0].GPU != gpu || before[0].Bytes < 8*gib {
		t.Fatalf("the driver knows %+v of the neighbour, want one process with 8 GiB on %s", before, gpu)
	}

	greedy := e.create(e.pinnedTo(gpu, one("greedy", gibs(10),
		"gpuload --json --alloc 9GiB; gpuload --json --alloc 11GiB; gpuload --json --gpu 1; "+hold)))
	greedy.running()
	lines := greedy.loads("main", 3)
	if l := lines[0]; l.Error != nil || l.Total == nil || *l.Total != 10*gib {
		t.Errorf("below its cap: %v", l)
	}
	if l := lines[1]; l.Error == nil {
		t.Errorf("past its cap: %v", l)
	}
	if l := lines[2]; l.Error == nil {
		t.Errorf("a second GPU: %v", l)
	}
	if its := e.grantOf(greedy, "main"); len(its.Shares) != 1 || its.Shares[0].GPU != gpu {
		t.Errorf("the two are not on one GPU: %+v and %s", its, gpu)
	}

	if s := neighbour.status("main"); s.State.Running == nil || s.RestartCount != 0 || containerID(s) != g.ContainerID {
		t.Errorf("the neighbour afterwards: %+v", s)
	}
	if after := neighbour.inDriver("main"); !slices.Equal(after, before) {
		t.Errorf("the neighbour has %+v in the driver, had %+v", after, before)
	}
	for amount, fits := range map[string]bool{"512MiB": true, "2GiB": false} {
		out, errOut, err := neighbour.exec("main", "gpuload", "--json", "--alloc", amount)
		if strings.TrimSpace(out) == "" {
			t.Errorf("%s more in the neighbour: %v, %s", amount, err, errOut)
		} else if l := decode[loaded](t, strings.TrimSpace(out)); (l.Error == nil) != fits {
			t.Errorf("%s more in the neighbour, which has room for 2 GiB less its context and the new one: %v", amount,
				l)
		}
	}
}

// inDriver are the processes of a container that the driver knows.
func (p *pod) inDriver(container string) []simProcess {
	p.e.Helper()
	id := p.id(container)
	return slices.DeleteFunc(p.e.node.processes(p.e.T),
		func(s simProcess) bool { return !strings.Contains(s.Cgroup, id) })
}
