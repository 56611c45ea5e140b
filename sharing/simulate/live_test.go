// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

func no(string) bool { return false }

func only(name string) func(string) bool { return func(n string) bool { return n == name } }

// liveNode has GPUs of 80 GiB.
func liveNode(name string, gpus int, claims ...gpunode.Grant) simulate.LiveNode {
	s := &gpunode.Status{Conditions: isReady(), Grants: claims}
	for i := range gpus {
		clique := i / 2
		s.GPUs = append(s.GPUs, gpunode.GPU{
			UUID: fmt.Sprintf("%s-%d", name, i), Index: i, Model: "H100", AllocatableBytes: int64(80 * sharing.GiB),
			Health: "healthy",
			Levels: []string{"driver", "reactive"}, NVLinkClique: &clique,
		})
	}
	return simulate.LiveNode{Name: name, CPU: 64_000, Memory: 512 * sharing.GiB, Report: s}
}

func claimOf(uid, container string, f ...gpunode.Share) gpunode.Grant {
	return gpunode.Grant{PodUID: uid, Container: container, Shares: f}
}

func shareOf(gpu string, gib int64, percent int) gpunode.Share {
	return gpunode.Share{GPU: gpu, MemoryBytes: gib << 30, Percent: percent}
}

func livePod(name, node string, limits map[string]string) simulate.LivePod {
	return simulate.LivePod{
		Pod: sharing.Pod{UID: "uid-" + name, Namespace: "team", Name: name, Node: node,
			Containers: []sharing.PodContainer{{Name: "c", Limits: limits}}},
		CPU: 4000, Memory: 16 * sharing.GiB,
	}
}

func live(t *testing.T, nodes []simulate.LiveNode, pods []simulate.LivePod, gone, mig func(string) bool) simulate.Live {
	t.Helper()
	l, err := simulate.NewLive(nodes, pods, gone, mig)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func memory(gib string) map[string]string { return map[string]string{sharing.ResourceMemory: gib} }

// left is what is free on each GPU of each node once what is there was booked.
func left(t *testing.T, l simulate.Live) map[string][]cluster.Milli {
	t.Helper()
	nodes := slices.Clone(l.Nodes)
	for i := range nodes {
		nodes[i].Cordoned, nodes[i].AllowedModes = false, cluster.AllModes
	}
	c := cluster.New(nodes, others.BestFit{})
	out := map[string][]cluster.Milli{}
	for _, h := range l.There {
		if err := c.Take(h.Grant.Request, cluster.Placement{Node: h.Node, GPUs: h.Grant.GPUs,
			Starts: h.Grant.Starts}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.Len() {
		n := c.Node(i)
		out[n.Name] = append([]cluster.Milli{n.CPU}, n.GPUs...)
	}
	return out
}

func TestLiveBooksWhatRuns(t *testing.T) {
	a := liveNode("a", 3,
		claimOf("uid-one", "c", shareOf("a-0", 20, 0)), claimOf("uid-two", "c", shareOf("a-1", 8, 50)),
		claimOf("", "", shareOf("a-0", 40, 0)), claimOf("uid-gone", "c", shareOf("a-1", 10, 0)))
	a.Report.GPUs[2].Health = "unhealthy"
	b := liveNode("b", 1, claimOf("uid-whole", "c", gpunode.Share{GPU: "b-0", Whole: true}))
	plain := simulate.LiveNode{Name: "plain", CPU: 8000, Memory: 32 * sharing.GiB, Closed: true}
	agent := livePod("agent", "a", nil)
	agent.Fixed = true
	pods := []simulate.LivePod{
		livePod("one", "a", memory("20")), livePod("two", "a", memory("8")),
		livePod("whole", "b", map[string]string{sharing.ResourceGPU: "1"}),
		agent, livePod("web", "plain", nil), livePod("next", "", memory("10")),
		livePod("wrong", "", map[string]string{sharing.ResourceMemory: "x"}),
	}
	l := live(t, []simulate.LiveNode{plain, b, a}, pods, no, no)
	want := map[string][]cluster.Milli{"a": {52_000, 250, 375}, "b": {60_000, 0}, "plain": {4000}}
	if diff := cmp.Diff(want, left(t, l)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if n := l.Nodes[0]; n.Model != "H100" || n.GPUMemory != 80*sharing.GiB || n.Level != sharing.LevelDriver ||
		n.CPU != 60_000 || n.Topology[1] != (cluster.Place{PCIe: 1}) {
		t.Errorf("node a: %+v", n)
	}
	if !l.Nodes[2].Cordoned || l.Nodes[1].Cordoned {
		t.Error("which nodes are closed")
	}
	if len(l.Waiting) != 1 || l.Waiting[0].Part != 125 || len(l.Moved) != 0 || len(l.Pods) != 5 {
		t.Errorf("waiting %+v, moved %+v, %d pods", l.Waiting, l.Moved, len(l.Pods))
	}
	if len(l.Left) != 1 || !strings.Contains(l.Left[0], "team/wrong") {
		t.Errorf("left out: %v", l.Left)
	}
}

// Pods of a profile have no amounts of their own: what they hold says them.
func TestLiveMovesWhatCannotStay(t *testing.T) {
	a := liveNode("a", 2, claimOf("uid-p", "c", shareOf("a-0", 30, 25)), claimOf("", "", shareOf("a-1", 10, 0)))
	profile := livePod("p", "a", map[string]string{sharing.ResourcePercent: "25"})
	profile.Annotations = map[string]string{"kerf.dev/profile": "small"}
	agent := livePod("agent", "a", nil)
	agent.Fixed = true
	pods := []simulate.LivePod{profile, livePod("plain", "a", nil), agent}
	gone := live(t, []simulate.LiveNode{a, liveNode("b", 2)}, pods, only("a"), no)
	if len(gone.Nodes) != 1 || len(gone.There) != 0 || len(gone.Moved) != 2 || gone.Moved[0].Share != 250 ||
		gone.Moved[0].GPUMemory != 30*sharing.GiB {
		t.Errorf("gone: %+v", gone)
	}
	inMIG := live(t, []simulate.LiveNode{a, liveNode("b", 2)}, pods, no, only("a"))
	if len(inMIG.Moved) != 1 || inMIG.Moved[0].Name != "team/p/c" || inMIG.Nodes[0].Table == nil ||
		inMIG.Nodes[1].Table != nil {
		t.Errorf("cut: %+v", inMIG)
	}
	if diff := cmp.Diff([]cluster.Milli{56_000, 1000, 1000}, left(t, inMIG)["a"]); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// Eighty parts of 1 GiB fill a GPU of 80 GiB, though each is a thousandth more when it is rounded up.
func TestLiveNeverBooksMoreThanThereIs(t *testing.T) {
	var claims []gpunode.Grant
	var pods []simulate.LivePod
	for i := range 80 {
		name := fmt.Sprintf("p%02d", i)
		claims = append(claims, claimOf("uid-"+name, "c", shareOf("a-0", 1, 0)))
		pods = append(pods, livePod(name, "a", memory("1")))
	}
	l := live(t, []simulate.LiveNode{liveNode("a", 1, claims...)}, pods, no, no)
	if diff := cmp.Diff([]cluster.Milli{0, 0}, left(t, l)["a"]); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// What a GPU is given more often than it is, counts so: for what is there, and for what is asked. No share is larger
// than the GPU for that, and whole GPUs are given once.
func TestLiveOvercommit(t *testing.T) {
	over := func(n simulate.LiveNode, memory, compute int, gpus ...int) simulate.LiveNode {
		for _, g := range gpus {
			n.Report.GPUs[g].Overcommit = &gpunode.Overcommit{MemoryPercent: memory, ComputePercent: compute}
		}
		return n
	}
	both := func(gib, percent string) map[string]string {
		return map[string]string{sharing.ResourceMemory: gib, sharing.ResourcePercent: percent}
	}
	percent := func(n string) map[string]string { return map[string]string{sharing.ResourcePercent: n} }
	whole := map[string]string{sharing.ResourceGPU: "1"}
	claims := []gpunode.Grant{claimOf("u1", "c", shareOf("a-0", 30, 60)), claimOf("u2", "c", shareOf("a-0", 30, 60)),
		claimOf("", "", shareOf("a-0", 30, 60))}
	for name, tt := range map[string]struct {
		node  simulate.LiveNode
		left  []cluster.Milli // of the GPUs
		asked map[string]string
		fit   int // of ten that ask for that
	}{
		"memory, twice as often": {over(liveNode("a", 1), 200, 0, 0), []cluster.Milli{1000}, memory("20"),
			8},
		"memory, once": {liveNode("a", 1), []cluster.Milli{1000}, memory("20"), 4},
		"compute": {over(liveNode("a", 1), 0, 200, 0), []cluster.Milli{1000},
			both("20", "50"), 4},
		"compute, once": {liveNode("a", 1), []cluster.Milli{1000}, both("20", "50"), 2},
		"all of the compute, by a share": {over(liveNode("a", 1), 0, 200, 0), []cluster.Milli{1000},
			both("20", "100"), 2},
		"percent alone, of both": {over(liveNode("a", 1), 150, 200, 0), []cluster.Milli{1000},
			percent("60"), 2},
		"percent alone, memory is once": {over(liveNode("a", 1), 0, 200, 0), []cluster.Milli{1000}, percent("60"),
			1},
		"all of a GPU's memory": {over(liveNode("a", 1), 200, 0, 0), []cluster.Milli{1000}, memory("80"),
			2},
		"more than a GPU's memory": {over(liveNode("a", 1), 200, 0, 0), []cluster.Milli{1000}, memory("81"),
			0},
		"whole": {over(liveNode("a", 2, claims[0]), 150, 200, 0, 1),
			[]cluster.Milli{700, 1000}, whole, 1},
		"next to what is there": {over(liveNode("a", 2, claims...), 150, 200, 0, 1),
			[]cluster.Milli{100, 1000}, memory("30"), 4},
		"as the least of different ones": {over(over(liveNode("a", 2), 150, 200, 0), 200, 150, 1),
			[]cluster.Milli{1000, 1000}, memory("30"), 8},
		"of which one is not": {over(liveNode("a", 2), 200, 0, 0), []cluster.Milli{1000, 1000},
			memory("40"), 4},
		"what is there is more than is reported": {over(liveNode("a", 1, claims...), 0, 150, 0), []cluster.Milli{0},
			memory("1"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := live(t, []simulate.LiveNode{tt.node}, nil, no, no)
			if diff := cmp.Diff(tt.left, left(t, l)["a"][1:]); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			var asked []simulate.LivePod
			for i := range 10 {
				p := livePod(fmt.Sprint(i), "", tt.asked)
				p.CPU = 0
				asked = append(asked, p)
			}
			waiting := live(t, []simulate.LiveNode{tt.node}, asked, no, no).Waiting
			policy, err := others.New("kerf", l.Nodes, waiting, 1)
			if err != nil {
				t.Fatal(err)
			}
			f, err := simulate.Experiment{Nodes: l.Nodes, There: l.There, Typical: waiting, Policy: policy,
				Now: ticking()}.Fits(nil, waiting)
			if err != nil {
				t.Fatal(err)
			}
			fit := 0
			for _, p := range f.Pods {
				fit += p.Placed
			}
			if fit != tt.fit || f.After > 100 {
				t.Errorf("%d fit, want %d; %v %% are then allocated", fit, tt.fit, f.After)
			}
		})
	}
	a := over(liveNode("a", 2), 150, 200, 0)
	if l := live(t, []simulate.LiveNode{a}, nil, no, no); len(l.Notes) != 1 ||
		!strings.Contains(l.Notes[0], "node a: its GPUs are overcommitted differently, and each counts as the least "+
			"of them: memory 1 times, compute 1 times") {
		t.Errorf("noted: %q", l.Notes)
	}
	a = over(liveNode("a", 2), 150, 200, 0, 1)
	if l := live(t, []simulate.LiveNode{a}, nil, no, only("a")); len(l.Notes) != 0 ||
		l.Nodes[0].Overcommit != (sharing.Overcommit{}) || l.Nodes[0].Table == nil {
		t.Errorf("in MIG mode: %q, %+v", l.Notes, l.Nodes[0].Overcommit)
	}
}

// What shares can be held at counts, and not what whole GPUs are.
func TestLiveLevels(t *testing.T) {
	for _, tt := range []struct {
		levels []string
		want   sharing.Level
	}{
		{[]string{"exclusive", "userspace"}, sharing.LevelUserspace}, {[]string{"hardware", "exclusive", "driver"},
			sharing.LevelDriver},
		{[]string{"exclusive"}, sharing.LevelNone}, {nil, sharing.LevelNone},
	} {
		a := liveNode("a", 1)
		a.Report.GPUs[0].Levels = tt.levels
		if got := live(t, []simulate.LiveNode{a}, nil, no, no).Nodes[0].Level; got != tt.want {
			t.Errorf("%v: %v, want %v", tt.levels, got, tt.want)
		}
	}
}

func TestLiveBooksInstances(t *testing.T) {
	a := liveNode("a", 2, claimOf("", "", gpunode.Share{GPU: "a-0", MIGProfile: "3g.40gb", MIGStart: 4}))
	for i := range a.Report.GPUs {
		a.Report.GPUs[i].MIG = true
	}
	a.Report.GPUs[0].MIGState = &gpunode.MIGState{Instances: []gpunode.MIGInstance{
		{Profile: "3g.40gb", Start: 4, Managed: true, MemorySlices: 4, Grant: "x"}, {Profile: "1g.10gb", Start: 0,
			MemorySlices: 1},
	}}
	a.Report.GPUs[1].MIGState = &gpunode.MIGState{
		Instances: []gpunode.MIGInstance{{Profile: "5g.60gb", Start: 0, MemorySlices: 6}}}
	l := live(t, []simulate.LiveNode{a}, nil, no, no)
	if diff := cmp.Diff([]cluster.Milli{64_000, 375, 0}, left(t, l)["a"]); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestFitsBesideWhatIsThere(t *testing.T) {
	a := liveNode("a", 1, claimOf("uid-one", "c", shareOf("a-0", 60, 0)))
	b := liveNode("b", 1, claimOf("uid-two", "c", shareOf("b-0", 50, 0)))
	b.Closed = true
	l := live(t, []simulate.LiveNode{a, b}, []simulate.LivePod{livePod("one", "a", memory("60")),
		livePod("two", "b", memory("50"))}, no, no)
	policy, err := others.New("kerf", l.Nodes, l.Pods, 1)
	if err != nil {
		t.Fatal(err)
	}
	e := simulate.Experiment{Nodes: l.Nodes, There: l.There, Typical: l.Pods, Policy: policy, Now: ticking()}
	asked := slices.Clone(l.Pods[:1])
	asked[0].GPUMemory, asked[0].Type = 30*sharing.GiB, "new"
	f, err := e.Fits(nil, asked)
	if err != nil {
		t.Fatal(err)
	}
	want := simulate.Fit{
		Before: 68.75, After: 68.75,
		Pods: []simulate.TypeFit{{Type: "new", Requested: 1, Reasons: []simulate.Cause{
			{Reason: "too little free on any one GPU", Nodes: 1,
				Example: "a: best GPU has 25 % free, 37.5 % requested"},
			{Reason: "takes nothing new", Nodes: 1, Example: "b: takes nothing new"},
		}}},
		More: []simulate.More{{Model: "H100", Nodes: 1, GPUs: 1}},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	asked[0].GPUMemory = 20 * sharing.GiB
	if f, err := e.Fits(nil, asked); err != nil || f.Pods[0].Placed != 1 {
		t.Errorf("%+v %v", f, err)
	}
}

// isReady are the conditions of a node whose containers can start.
func isReady() []gpunode.Condition {
	return []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}
}
