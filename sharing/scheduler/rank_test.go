// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// checkCandidates holds the order of the candidates against what Fit and Score say of each node by itself.
func checkCandidates(t testing.TB, b *scheduler.ClusterState, w scheduler.PodRequest, free map[string]cluster.Milli,
	now time.Time) {
	t.Helper()
	var expected, got []scheduler.Candidate
	for name, cpu := range free {
		if b.Fit(w, name, now).Reason == scheduler.Fits {
			expected = append(expected, scheduler.Candidate{Node: name, Score: b.Score(w, name, cpu, now), Free: cpu})
		}
	}
	slices.SortFunc(expected, func(x, y scheduler.Candidate) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.Node, y.Node))
	})
	for all := b.Candidates(w, maps.All(free), now); ; {
		one, ok := all.Best()
		if !ok {
			break
		}
		got = append(got, one)
	}
	if d := gocmp.Diff(expected, got); d != "" {
		t.Errorf("candidates for %s (-want +got):\n%s", w, d)
	}
}

// Stored answers of nodes equal new ones, whatever changes. The nodes change, what the policy has learned, the free
// CPU, the pod, and the number of kinds of pods.
func TestCandidatesAreThoseOfFitAndScore(t *testing.T) {
	const nodes, gpus = 6, 2
	random := rand.New(rand.NewPCG(3, 4))
	clusterNow, now := clusterStateOf(nodes, gpus), noon()
	on := map[string]int{}
	ranked := 0
	for i := range 3000 {
		free := map[string]cluster.Milli{"no-such-node": 5}
		for n := range nodes {
			free[nodeName(n)] = machine().CPU - cluster.Milli(random.IntN(3)*1000)
		}
		p := podOf("p"+strconv.Itoa(i), map[string]string{sharing.ResourcePercent: strconv.Itoa(1 + random.IntN(100))})
		switch random.IntN(8) {
		case 0:
			p = podOf("p"+strconv.Itoa(i), whole(1+random.IntN(2)))
		case 1:
			p.Containers = append(p.Containers, sharing.PodContainer{Name: "side", Limits: memory(1 + random.IntN(40))})
		}
		w := want(t, p)
		w.CPU = cluster.Milli(random.IntN(2) * 1000)
		clusterNow.Learn(w)
		checkCandidates(t, clusterNow, w, free, now)
		all := clusterNow.Candidates(w, maps.All(free), now)
		best, ok := all.Best()
		switch {
		case ok:
			ranked++
			if _, err := clusterNow.Reserve(w, best.Node, now); err != nil {
				t.Fatal(err)
			}
			on[p.UID] = i
		case len(on) > 0:
			for uid := range on {
				clusterNow.Unreserve(uid)
				delete(on, uid)
				if random.IntN(4) == 0 {
					break
				}
			}
		}
		switch n := random.IntN(nodes); random.IntN(40) {
		case 0:
			clusterNow.Report(nodeName(n), statusOf(n, gpus, hold{uid: "other", gpu: random.IntN(gpus), memory: 20}))
		case 1:
			clusterNow.NoReport(nodeName(n))
		case 2:
			clusterNow.Report(nodeName(n), statusOf(n, gpus))
			clusterNow.Heartbeat(nodeName(n), now.Add(time.Duration(i)*time.Millisecond), 40*time.Second, now)
		case 3:
			now = now.Add(10 * time.Second)
		}
		if t.Failed() {
			t.Fatalf("at pod %d", i)
		}
	}
	if ranked < 300 {
		t.Errorf("%d pods had a candidate: too few to show anything", ranked)
	}
}
