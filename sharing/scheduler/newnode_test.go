// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// offering is the state of a cluster of nodes of two GPUs, each of which offers the total of its GPUs. On each GPU runs
// a pod with so many GiB.
func offering(t *testing.T, nodes, taken int) *scheduler.ClusterState {
	t.Helper()
	b := scheduler.New()
	for i := range nodes {
		name := nodeName(i)
		b.Machine(name, scheduler.Machine{CPU: 64000, Memory: 512 * sharing.GiB, Allocatable: map[string]int64{
			sharing.ResourceMemory: 158, sharing.ResourcePercent: 200, sharing.ResourceGPU: 2}})
		var holds []hold
		for g := range 2 {
			uid := fmt.Sprintf("%s-%d", name, g)
			if taken > 0 {
				holds = append(holds, hold{uid: uid, gpu: g, memory: int64(taken)})
				p := podOf(uid, memory(taken))
				p.Node = name
				b.Pod(p, want(t, p), noon())
			}
		}
		b.Report(name, statusOf(i, 2, holds...))
		b.Heartbeat(name, noon(), 40*time.Second, noon())
	}
	return b
}

// TestMisleading: a node autoscaler needs help only if a node fits in total, no GPU does, and a new node would help.
func TestMisleading(t *testing.T) {
	for _, tt := range []struct {
		name         string
		nodes, taken int
		limits       map[string]string
		want         []string
	}{
		{"the total fits and no GPU does", 2, 50, memory(40), []string{"n00", "n01"}},
		{"a GPU fits", 2, 50, memory(29), nil},
		{"the total does not fit", 2, 79, memory(40), nil},
		{"no GPU of any node is large enough", 2, 50, memory(100), nil},
		{"a share of an empty node's GPU that is too small", 1, 0, memory(80), nil},
		{"a whole GPU, while each has a share", 1, 10, whole(1), []string{"n00"}},
		{"more whole GPUs than a node has", 1, 10, whole(3), nil},
		{"no node", 0, 0, memory(10), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := offering(t, tt.nodes, tt.taken).Misleading(want(t, podOf("new", tt.limits)), noon())
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestMisleadingNewNode: a node that joined and has room ends the need.
func TestMisleadingNewNode(t *testing.T) {
	b, w := offering(t, 1, 50), want(t, podOf("new", memory(40)))
	if got := b.Misleading(w, noon()); len(got) != 1 {
		t.Fatalf("got %q", got)
	}
	b.Machine("n07", machine())
	b.Report("n07", statusOf(7, 2))
	b.Heartbeat("n07", noon(), 40*time.Second, noon())
	if got := b.Misleading(w, noon()); got != nil {
		t.Errorf("with an empty node: %q", got)
	}
}
