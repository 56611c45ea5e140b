// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// A container sees one GPU at the size that it asked for, and gets no more; its neighbour does not feel that it
// tries.
func TestFraction(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	neighbour := e.create(one("neighbour", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	neighbour.running()
	greedy := e.create(one("greedy", gibs(10), "gpuload --json --alloc 9GiB; gpuload --json --alloc 11GiB; gpuload --json --gpu 1; ls /dev"))
	greedy.phase(corev1.PodSucceeded)
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
	if l := neighbour.loads("main", 1)[0]; l.Error != nil || l.Allocated != 9*gib {
		t.Errorf("the neighbour: %v", l)
	}
	g := e.grantOf(neighbour, "main")
	if g.Memory != 10*gib || g.Level != "driver" || g.ContainerID != neighbour.id("main") || len(g.Fragments) != 1 {
		t.Fatalf("grant of the neighbour: %+v", g)
	}
	caps := neighbour.caps("main")
	if caps[g.Fragments[0].GPU] != 10*gib {
		t.Errorf("the driver holds %v for it, want 10 GiB on %s", caps, g.Fragments[0].GPU)
	}
}
