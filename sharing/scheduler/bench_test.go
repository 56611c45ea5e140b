// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// The time for one pod on 1,000 nodes of 8 GPUs: all are ranked, and the best is reserved. After the cluster is full,
// it starts empty again.
func BenchmarkPod(b *testing.B) {
	const nodes = 1000
	names := make([]string, nodes)
	for i := range names {
		names[i] = nodeName(i)
	}
	begin := func() *scheduler.ClusterState {
		clusterNow := clusterStateOf(nodes, 8)
		for _, name := range names {
			clusterNow.Heartbeat(name, noon().Add(time.Second), 24*time.Hour, noon())
		}
		return clusterNow
	}
	free := func(yield func(string, cluster.Milli) bool) {
		for _, name := range names {
			if !yield(name, machine().CPU) {
				return
			}
		}
	}
	clusterNow, n := begin(), 0
	for b.Loop() {
		n++
		w := want(b, podOf(fmt.Sprint("p", n), map[string]string{sharing.ResourcePercent: "25"}))
		clusterNow.Learn(w)
		candidates := clusterNow.Candidates(w, free, noon())
		first, ok := candidates.Best()
		if !ok {
			clusterNow = begin()
			continue
		}
		clusterNow.Terms(w, first.Node, machine().CPU, noon())
		if _, err := clusterNow.Reserve(w, first.Node, noon()); err != nil {
			b.Fatal(err)
		}
	}
}
