// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// draStatus is a report of GPUs that pods get by ResourceClaim.
func draStatus(s gpunode.Status) gpunode.Status {
	for i := range s.GPUs {
		s.GPUs[i].Mode = gpunode.ModeDRA
	}
	return s
}

// shareOn is a share of a GPU, as claims have it.
func shareOn(node, gpu int, memory uint64) dra.Result {
	return dra.Result{Request: fmt.Sprint("claim-", gpu, "/gpu"), Pool: nodeName(node), Memory: memory * uint64(gib),
		Device: dra.DeviceName(sharing.GPUID(uuid(node, gpu)), dra.KindShare)}
}

// wholeOn is a GPU of a request for several.
func wholeOn(node, gpu int) dra.Result {
	return dra.Result{Request: "claim/gpu", Pool: nodeName(node),
		Device: dra.DeviceName(sharing.GPUID(uuid(node, gpu)), dra.KindWhole)}
}

func instanceOn(node, gpu int, profile string, start int) dra.Result {
	name, _ := dra.InstanceName(sharing.GPUID(uuid(node, gpu)), sharing.InstanceRef{Profile: profile, Start: start})
	return dra.Result{Request: "claim/gpu", Pool: nodeName(node), Device: name}
}

// claimCluster has the reports of its nodes.
func claimCluster(t *testing.T, reports ...gpunode.Status) *scheduler.ClusterState {
	t.Helper()
	b := clusterStateOf(len(reports), 1)
	for i, s := range reports {
		b.Report(nodeName(i), s)
	}
	return b
}

// results are the devices of a placement.
type results []dra.Result

// claimScore is the score of devices on a node where these are allocated.
func claimScore(b *scheduler.ClusterState, node int, allocated, devices results) (int64, bool) {
	return b.ScoreClaims(scheduler.ClaimPlacement{Node: nodeName(node), CPU: 1000, Free: 64000, Devices: devices,
		Allocated: allocated}, noon())
}

// learnUsual has the policy learn of shares of 10 GiB and of 40 GiB.
func learnUsual(b *scheduler.ClusterState) {
	for i := range 64 {
		b.LearnClaims(fmt.Sprint(i), []dra.Wanted{{Request: "gpu", Count: 1,
			Memory: sharing.Bytes(10+30*(i%2)) * sharing.GiB}}, 1000)
	}
}

// TestScoreClaims compares the placement of a claim on two nodes. The first is better.
func TestScoreClaims(t *testing.T) {
	empty := func(node int) gpunode.Status { return draStatus(statusOf(node, 2)) }
	for name, tc := range map[string]struct {
		reports            [2]gpunode.Status
		allocated, devices [2]results
	}{
		"a tight fit": {[2]gpunode.Status{empty(0), empty(1)},
			[2]results{{shareOn(0, 0, 69)}, {shareOn(1, 0, 34)}}, [2]results{{shareOn(0, 0, 10)}, {shareOn(1, 0, 10)}}},
		"a shared GPU before an empty one": {[2]gpunode.Status{empty(0), empty(1)},
			[2]results{{shareOn(0, 0, 69)}, nil}, [2]results{{shareOn(0, 0, 10)}, {shareOn(1, 0, 10)}}},
		"two GPUs of nodes with two, or with one free": {[2]gpunode.Status{empty(0), draStatus(statusOf(1, 4))},
			[2]results{nil, nil}, [2]results{{wholeOn(0, 0), wholeOn(0, 1)}, {wholeOn(1, 0), wholeOn(1, 3)}}},
		"an instance next to another": {[2]gpunode.Status{draStatus(migStatus(0, 1)), draStatus(migStatus(1, 1))},
			[2]results{{instanceOn(0, 0, "1g.10gb", 0)}, {instanceOn(1, 0, "1g.10gb", 0)}},
			[2]results{{instanceOn(0, 0, "1g.10gb", 1)}, {instanceOn(1, 0, "1g.10gb", 4)}}},
		"an instance on a GPU in MIG mode before one on another": {
			[2]gpunode.Status{draStatus(migStatus(0, 1)), draStatus(switchStatus(1, 1))}, [2]results{nil, nil},
			[2]results{{instanceOn(0, 0, "1g.10gb", 0)}, {instanceOn(1, 0, "1g.10gb", 6)}}},
	} {
		b := claimCluster(t, tc.reports[:]...)
		learnUsual(b)
		var score [2]int64
		for i := range 2 {
			var ok bool
			if score[i], ok = claimScore(b, i, tc.allocated[i], tc.devices[i]); !ok {
				t.Errorf("%s: no score on node %d", name, i)
			}
		}
		if score[0] <= score[1] {
			t.Errorf("%s: scores %v", name, score)
		}
	}
}

// TestClaimRank: a node with the first alternative is better than one with the second, however well that fits.
func TestClaimRank(t *testing.T) {
	b := claimCluster(t, draStatus(statusOf(0, 2)))
	learnUsual(b)
	allocated, devices := results{shareOn(0, 0, 69)}, results{shareOn(0, 0, 10)}
	tight, _ := claimScore(b, 0, allocated, devices)
	loose, _ := claimScore(b, 0, allocated, results{shareOn(0, 1, 10)})
	second, ok := b.ScoreClaims(scheduler.ClaimPlacement{Node: nodeName(0), CPU: 1000, Free: 64000, Devices: devices,
		Allocated: allocated, Rank: 1}, noon())
	if !ok || tight <= loose || second >= loose {
		t.Errorf("a tight fit %d, a loose one %d; as second alternative the tight one %d", tight, loose, second)
	}
}

// TestClaimsCountOnce: an allocated claim has the same effect before and after its node has reported the grant. A grant
// without an allocated claim is about to be released, and has none.
func TestClaimsCountOnce(t *testing.T) {
	b := claimCluster(t, draStatus(statusOf(0, 2)))
	allocated, devices := results{shareOn(0, 0, 30)}, results{shareOn(0, 0, 40)}
	before, _ := claimScore(b, 0, allocated, devices)
	none, _ := claimScore(b, 0, nil, devices)
	b.Report(nodeName(0), draStatus(statusOf(0, 2, hold{"pod", 0, 30, 0, 0})))
	after, ok := claimScore(b, 0, allocated, devices)
	released, _ := claimScore(b, 0, nil, devices)
	if !ok || before != after || before == none || released != none {
		t.Errorf("in flight %d, reported %d; without the claim %d, then %d", before, after, none, released)
	}
}

// TestNoOpinionOnClaims: Kerf has none of a node that is not to be believed, and of one that has no room by its report.
func TestNoOpinionOnClaims(t *testing.T) {
	torn := draStatus(statusOf(0, 1, hold{"pod", 0, 30, 0, 0}))
	torn.Fingerprint = "other"
	process := draStatus(statusOf(0, 1, hold{"", 0, 75, 0, 0}))
	faulty := draStatus(statusOf(0, 1))
	faulty.GPUs[0].Health = "unhealthy"
	for name, tc := range map[string]struct {
		report  gpunode.Status
		devices results
	}{
		"a report that does not agree with itself": {torn, results{shareOn(0, 0, 10)}},
		"a process that has the GPU":               {process, results{shareOn(0, 0, 10)}},
		"an unhealthy GPU":                         {faulty, results{shareOn(0, 0, 10)}},
		"a GPU of the device plugin":               {statusOf(0, 1), results{shareOn(0, 0, 10)}},
		"a GPU that the node does not report":      {draStatus(statusOf(0, 1)), results{shareOn(0, 3, 10)}},
		"an instance of a GPU that cannot have it": {draStatus(statusOf(0, 1)),
			results{instanceOn(0, 0, "1g.10gb", 0)}},
		"an instance at a place that does not exist": {draStatus(migStatus(0, 1)),
			results{instanceOn(0, 0, "2g.20gb", 1)}},
		"no device of Kerf": {draStatus(statusOf(0, 1)), nil},
	} {
		b := claimCluster(t, tc.report)
		if score, ok := claimScore(b, 0, nil, tc.devices); ok {
			t.Errorf("%s: score %d", name, score)
		}
	}
	b := claimCluster(t, draStatus(statusOf(0, 1)))
	late := noon().Add(time.Minute)
	if _, ok := b.ScoreClaims(scheduler.ClaimPlacement{Node: nodeName(0), Free: 64000,
		Devices: results{shareOn(0, 0, 10)}}, late); ok {
		t.Error("a stale report has a score")
	}
	if _, ok := claimScore(b, 7, nil, results{shareOn(0, 0, 10)}); ok {
		t.Error("an unknown node has a score")
	}
}

// TestLimitsGetNoGPUOfClaims: a GPU that pods get by ResourceClaim answers no limits.
func TestLimitsGetNoGPUOfClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		report gpunode.Status
		limits map[string]string
	}{
		"a share":       {draStatus(statusOf(0, 1)), memory(10)},
		"a whole GPU":   {draStatus(statusOf(0, 1)), whole(1)},
		"an instance":   {draStatus(migStatus(0, 1)), mig("1g.10gb")},
		"a mode switch": {draStatus(switchStatus(0, 1)), mig("1g.10gb")},
	} {
		b := claimCluster(t, tc.report)
		w := want(t, podOf("p", tc.limits))
		if v := b.Fit(w, nodeName(0), noon()); v.Reason == scheduler.Fits {
			t.Errorf("%s: it fits, %+v", name, v.Plan)
		}
		if _, err := b.Reserve(w, nodeName(0), noon()); err == nil {
			t.Errorf("%s: it was reserved", name)
		}
	}
}

// TestLearnClaims: the policy learns of pods with claims as of pods with limits, each once.
func TestLearnClaims(t *testing.T) {
	scores := func(learn func(b *scheduler.ClusterState, uid string)) (int64, int64) {
		b := claimCluster(t, draStatus(statusOf(0, 2)))
		before, _ := claimScore(b, 0, nil, results{shareOn(0, 0, 30)})
		for i := range 128 {
			learn(b, fmt.Sprint("pod-", i))
			learn(b, fmt.Sprint("pod-", i))
		}
		after, _ := claimScore(b, 0, nil, results{shareOn(0, 0, 30)})
		return before, after
	}
	before, claims := scores(func(b *scheduler.ClusterState, uid string) {
		b.LearnClaims(uid, []dra.Wanted{{Claim: uid, Request: "gpu/large", Count: 1, Memory: 50 * sharing.GiB},
			{Claim: uid, Request: "gpu/small", Count: 1, Memory: 10 * sharing.GiB}}, 1000)
	})
	_, limits := scores(func(b *scheduler.ClusterState, uid string) {
		w := want(t, podOf(uid, memory(50)))
		w.CPU = 1000
		b.Learn(w)
	})
	if claims == before || claims != limits {
		t.Errorf("before %d, after claims %d, after limits %d", before, claims, limits)
	}
}

// TestForgetClaims: the end of many bound pods changes scores, as of pods with limits. The end of others changes none.
func TestForgetClaims(t *testing.T) {
	for _, bound := range []bool{false, true} {
		b := claimCluster(t, draStatus(statusOf(0, 2)))
		for i := range 64 {
			b.LearnClaims(fmt.Sprint("pod-", i), []dra.Wanted{{Claim: "c", Request: "gpu", Count: 1,
				Memory: 50 * sharing.GiB}}, 1000)
		}
		before, _ := claimScore(b, 0, nil, results{shareOn(0, 0, 30)})
		for i := range 64 {
			b.ForgetClaims(fmt.Sprint("pod-", i), bound)
			b.ForgetClaims("other", true)
		}
		if after, _ := claimScore(b, 0, nil, results{shareOn(0, 0, 30)}); (after != before) != bound {
			t.Errorf("bound %t: before %d, after %d", bound, before, after)
		}
	}
}
