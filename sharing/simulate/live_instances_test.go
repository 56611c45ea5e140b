// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// What the pool gives of a GPU, how strongly it demands that to be held, and what kubelet counts decide what fits, as
// they do for the scheduler.
func TestLiveGivesWhatThePoolLetsIt(t *testing.T) {
	gives := func(n simulate.LiveNode, each ...string) simulate.LiveNode {
		for i, word := range each {
			n.Report.GPUs[i].Mode = word
		}
		return n
	}
	demands := func(n simulate.LiveNode, levels, least string) simulate.LiveNode {
		for i := range n.Report.GPUs {
			n.Report.GPUs[i].Levels, n.Report.GPUs[i].MinEnforcement = strings.Split(levels, ","), least
		}
		return n
	}
	bare := func(n simulate.LiveNode, least string) simulate.LiveNode {
		for i := range n.Report.GPUs {
			n.Report.GPUs[i].LevelReason = "driver: too old"
		}
		return demands(n, "exclusive,none", least)
	}
	offers := func(n simulate.LiveNode, amounts map[string]int64) simulate.LiveNode {
		n.Allocatable = amounts
		return n
	}
	const s, w = gpunode.ModeShared, gpunode.ModeWhole
	half, whole := map[string]string{sharing.ResourcePercent: "50"}, map[string]string{sharing.ResourceGPU: "1"}
	for name, tt := range map[string]struct {
		node          simulate.LiveNode
		halves, whole int // of ten pods that ask for that
		note          string
	}{
		"all":    {liveNode("a", 2), 4, 2, ""},
		"shared": {gives(liveNode("a", 2), s, s), 4, 0, ""},
		"whole":  {gives(liveNode("a", 2), w, w), 0, 2, ""},
		"nothing of one": {gives(liveNode("a", 2), gpunode.ModeExcluded), 2, 1,
			"node a: 1 of its GPUs are left out"},
		"what MIG would be cut for": {gives(liveNode("a", 2), "mig", "mig"), 0, 0,
			"node a: 2 of its GPUs are left out"},
		"differently": {gives(liveNode("a", 3), s, w, w), 2, 2,
			"(1 in parts alone, 2 whole alone): they count as 2 nodes, each with its part of CPU and memory"},
		"as strongly as required":     {demands(liveNode("a", 2), "exclusive,driver,reactive", "userspace"), 4, 2, ""},
		"less strongly than required": {demands(liveNode("a", 2), "exclusive,reactive", "userspace"), 0, 2, ""},
		"shared, less strongly": {demands(gives(liveNode("a", 2), s, s), "exclusive,reactive", "userspace"), 0, 0,
			"2 of its GPUs are left out"},
		"not enforced": {bare(liveNode("a", 2), ""), 0, 2,
			"node a: 2 of its GPUs give no shares, because no backend enforces them (driver: too old); set " +
				"minEnforcement: none on the pool"},
		"not enforced, allowed":     {bare(liveNode("a", 2), "none"), 4, 2, ""},
		"not enforced, whole alone": {gives(bare(liveNode("a", 2), ""), w, w), 0, 2, ""},
		"unknown": {demands(liveNode("a", 2), "exclusive,unknown", ""), 0, 2,
			"2 of its GPUs give no shares"},
		"reactive by default": {demands(liveNode("a", 2), "exclusive,reactive", ""), 4, 2, ""},
		"counted by memory": {offers(liveNode("a", 2), map[string]int64{sharing.ResourceMemory: 160,
			sharing.ResourceGPU: 0}), 4, 0, ""},
		"counted whole": {offers(liveNode("a", 2), map[string]int64{sharing.ResourceGPU: 2}), 0, 2, ""},
		"counted both ways": {offers(liveNode("a", 2), map[string]int64{sharing.ResourcePercent: 200,
			sharing.ResourceGPU: 2}), 4, 2, ""},
		"not counted now": {offers(liveNode("a", 2), map[string]int64{sharing.ResourceMemory: 0,
			sharing.ResourceGPU: 0}), 4, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, want := range map[string]int{"half": tt.halves, "whole": tt.whole} {
				var asked []simulate.LivePod
				for i := range 10 {
					p := livePod(fmt.Sprint(kind, i), "", map[string]map[string]string{"half": half,
						"whole": whole}[kind])
					p.CPU = 0
					asked = append(asked, p)
				}
				l := live(t, []simulate.LiveNode{tt.node, liveNode("other", 0)}, asked, no, no)
				if (len(l.Notes) > 0) != (tt.note != "") || !strings.Contains(strings.Join(l.Notes, "\n"), tt.note) {
					t.Errorf("notes %q, want %q", l.Notes, tt.note)
				}
				if tt.halves+tt.whole == 0 { // there is no GPU to fill
					if n := l.Nodes[0]; len(n.GPUs) > 0 {
						t.Errorf("%d GPUs", len(n.GPUs))
					}
					continue
				}
				if f := fits(t, l, "kerf", l.Waiting); placed(f) != want {
					t.Errorf("%d of kind %s fit, want %d: %+v", placed(f), kind, want, f.Pods)
				}
			}
		})
	}
}

func fits(t *testing.T, l simulate.Live, name string, pods []simulate.Pod) simulate.Fit {
	t.Helper()
	policy, err := others.New(name, l.Nodes, pods, 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := simulate.Experiment{Nodes: l.Nodes, There: l.There, Typical: pods, Policy: policy,
		Now: ticking()}.Fits(nil,
		pods)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func placed(f simulate.Fit) (n int) {
	for _, p := range f.Pods {
		n += p.Placed
	}
	return n
}

// What runs stays, though the pool's rules have changed since; each part of a node has the CPU of the pods on its GPUs;
// the policies of today know no rules of Kerf's; and what becomes MIG leaves them behind.
func TestLivePiecesOfWhatRuns(t *testing.T) {
	a := liveNode("a", 4, claimOf("uid-one", "c", shareOf("a-3", 40, 0)))
	for i, word := range []string{gpunode.ModeShared, gpunode.ModeShared, gpunode.ModeShared, gpunode.ModeWhole} {
		a.Report.GPUs[i].Mode = word
	}
	agent, big := livePod("agent", "a", nil), livePod("one", "a", memory("40"))
	agent.Fixed, big.CPU = true, 20_000
	pods := []simulate.LivePod{agent, big, livePod("next", "", memory("10"))}
	l := live(t, []simulate.LiveNode{a}, pods, no, no)
	parts, whole := "a (GPUs given in parts alone)", "a (GPUs given whole alone)"
	// 64 cores: 48 and 16, of which the one on the last GPU takes 16 and 4 more, and the agent 4 of the first.
	want := map[string][]cluster.Milli{parts: {40_000, 1000, 1000, 1000}, whole: {0, 500}}
	if diff := cmp.Diff(want, left(t, l)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if l.Nodes[0].Memory != 384*sharing.GiB-16*sharing.GiB || l.Nodes[1].Memory != 128*sharing.GiB {
		t.Errorf("memory %v and %v", l.Nodes[0].Memory, l.Nodes[1].Memory)
	}
	f := fits(t, l, "kerf", l.Waiting)
	if placed(f) != 1 {
		t.Errorf("%+v", f)
	}
	for i := range a.Report.GPUs {
		a.Report.GPUs[i].Mode = gpunode.ModeShared
	}
	l = live(t, []simulate.LiveNode{a}, pods, no, no)
	if len(l.Nodes) != 1 || l.Nodes[0].Name != "a" || len(l.Notes) != 0 {
		t.Errorf("%+v, notes %q", l.Nodes, l.Notes)
	}
	wide := l.Waiting
	wide[0].GPUs, wide[0].Share, wide[0].GPUMemory = 2, cluster.WholeGPU, 0
	f = fits(t, l, "kerf", wide)
	if placed(f) != 0 || f.Pods[0].Reasons[0].Example != "a: GPUs are given in parts alone, whole ones requested" {
		t.Errorf("whole GPUs: %+v", f)
	}
	if f := fits(t, l, "nvidia-whole", wide); placed(f) != 1 {
		t.Errorf("as NVIDIA's device plugin does: %+v", f)
	}
	inMIG := live(t, []simulate.LiveNode{a}, pods, no, only("a"))
	if n := inMIG.Nodes[0]; len(inMIG.Nodes) != 1 || n.Table == nil || n.AllowedModes != cluster.AllModes ||
		len(n.GPUs) != 4 {
		t.Errorf("in MIG mode: %+v", inMIG.Nodes)
	}
}
