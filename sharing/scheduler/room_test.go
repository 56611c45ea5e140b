// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// With instances too, stored answers of nodes equal new ones, while free units on other nodes change their values.
func TestCandidatesForInstancesAreThoseOfFitAndScore(t *testing.T) {
	const nodes, gpus = 5, 2
	random := rand.New(rand.NewPCG(*seed, 9))
	clusterNow, now := clusterStateOf(nodes, gpus), noon()
	for n := range nodes {
		clusterNow.Report(nodeName(n), migStatus(n, gpus))
	}
	var on []string
	ranked := 0
	for i := range 1000 {
		free := map[string]cluster.Milli{}
		for n := range nodes {
			free[nodeName(n)] = machine().CPU
		}
		w := want(t, podOf("p"+strconv.Itoa(i), mig(slices7()[random.IntN(len(slices7()))].Name)))
		clusterNow.Learn(w)
		checkCandidates(t, clusterNow, w, free, now)
		all := clusterNow.Candidates(w, maps.All(free), now)
		if best, ok := all.Best(); ok {
			ranked++
			if _, err := clusterNow.Reserve(w, best.Node, now); err != nil {
				t.Fatal(err)
			}
			on = append(on, w.UID)
		}
		for len(on) > 0 && random.IntN(100) < 45 {
			at := random.IntN(len(on))
			clusterNow.Unreserve(on[at])
			on = slices.Delete(on, at, at+1)
		}
		if t.Failed() {
			t.Fatalf("at pod %d", i)
		}
	}
	if ranked < 300 {
		t.Errorf("%d pods had a candidate: too few to show anything", ranked)
	}
}

// A GPU whose memory slices 0-3 are free is kept for a 4g, of which some are expected, while there is one such GPU.
// With fourteen such GPUs and six empty ones, a 3g takes one of them.
func TestNodesAreWorthWhatOthersLeave(t *testing.T) {
	const nodes = 20
	profiles := append(slices7(), gpunode.MIGProfile{Name: "4g.40gb", ID: 5, Compute: 4, MemoryBytes: 40 * gib,
		MaxInstances: 1,
		MemorySlices: 4, PlacementStarts: []int{0}})
	for halves, completes := range map[int]bool{1: false, 14: true} {
		clusterNow := clusterStateOf(nodes, 1)
		offers := machine()
		offers.Allocatable["kerf.dev/mig-4g.40gb"] = 1
		free := map[string]cluster.Milli{}
		for n := range nodes {
			var grants []migGrant
			if n < halves {
				grants = []migGrant{{fmt.Sprint("half", n), 0, "3g.40gb", 4}}
			}
			s := migStatus(n, 1, grants...)
			s.GPUs[0].MIGState.Geometry = profiles
			clusterNow.Machine(nodeName(n), offers)
			clusterNow.Report(nodeName(n), s)
			free[nodeName(n)] = offers.CPU
		}
		for i := range 128 {
			asked := []string{"3g.40gb", "4g.40gb", "7g.80gb", "3g.40gb", "4g.40gb", "7g.80gb", "7g.80gb",
				"2g.20gb"}[i%8]
			clusterNow.Learn(want(t, podOf("usual"+strconv.Itoa(i), mig(asked))))
		}
		all := clusterNow.Candidates(want(t, podOf("p", mig("3g.40gb"))), maps.All(free), noon())
		best, ok := all.Best()
		if got := best.Node < nodeName(halves); !ok || got != completes {
			t.Errorf("%d halves: a 3g goes to %s", halves, best.Node)
		}
	}
}
