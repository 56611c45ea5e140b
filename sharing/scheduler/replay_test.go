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
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const (
	replayNodes = 5
	replayGPUs  = 4
)

// replayed is a pod of the trace: where the cluster state has it, and where the cluster that kerf simulate fills has
// it.
type replayed struct {
	pod   sharing.Pod
	plan  []scheduler.Planned
	node  int
	claim cluster.Request
	place cluster.Placement
}

// replay offers one trace to the cluster state, as kerf-scheduler does, and to the cluster that kerf simulate fills.
type replay struct {
	*testing.T
	now        time.Time
	clusterNow *scheduler.ClusterState
	c          *cluster.Cluster
	lives      []replayed
}

func newReplay(t *testing.T) *replay {
	r := &replay{T: t, now: noon(), clusterNow: clusterStateOf(replayNodes, replayGPUs)}
	var nodes []cluster.Node
	for i := range replayNodes {
		r.clusterNow.Heartbeat(nodeName(i), r.now.Add(time.Second), 100*time.Hour, r.now)
		n := cluster.Node{Name: nodeName(i), CPU: machine().CPU, Memory: machine().Memory, Model: "H100",
			GPUMemory: 79 * sharing.GiB, Level: sharing.LevelDriver}
		for range replayGPUs {
			n.GPUs = append(n.GPUs, cluster.WholeGPU)
		}
		nodes = append(nodes, n)
	}
	r.c = cluster.New(nodes, cluster.NewOnline(nodes))
	r.clusterNow.Fitting(want(t, podOf("probe", whole(1))), r.now) // they take in their nodes when they are asked first
	return r
}

// The scheduler's state places a trace of pods as kerf simulate does, whatever the policy learns meanwhile. The same
// pods fit, on the same nodes, and shares on GPUs with the same free amounts.
func TestReplayIsAsSimulated(t *testing.T) {
	r := newReplay(t)
	random := rand.New(rand.NewPCG(5, 6))
	sizes := []int{10, 20, 30, 40, 50, 60, 80}
	placed, refused := 0, 0
	for i := range 800 {
		r.now = r.now.Add(10 * time.Second)
		limits := map[string]string{sharing.ResourcePercent: strconv.Itoa(sizes[random.IntN(len(sizes))])}
		if random.IntN(6) == 0 {
			limits = whole([]int{1, 2, 4}[random.IntN(3)])
		}
		if r.arrive(podOf(fmt.Sprintf("p%04d", i), limits)) {
			placed++
		} else {
			refused++
		}
		for len(r.lives) > 0 && random.IntN(100) < 47 {
			r.leave(random.IntN(len(r.lives)))
		}
		if t.Failed() {
			t.Fatalf("at pod %d", i)
		}
	}
	if placed < 300 || refused < 20 {
		t.Errorf("%d placed, %d refused: too few to show anything", placed, refused)
	}
}

// arrive is true when there was room.
func (r *replay) arrive(p sharing.Pod) bool {
	w := want(r, p)
	q := cluster.Request{Shape: cluster.Shape{GPUs: w.Containers[0].Request.GPUs, Share: cluster.WholeGPU}}
	if ask := w.Containers[0].Request; ask.Kind == sharing.KindShared {
		q.Share = cluster.Milli(ask.Percent) * 10
	}
	r.clusterNow.Learn(w)
	r.c.Learn(q)
	place, simulated := r.c.Choose(q)
	free := map[string]cluster.Milli{}
	for i := range replayNodes {
		free[nodeName(i)] = machine().CPU
	}
	checkCandidates(r, r.clusterNow, w, free, r.now)
	candidates := r.clusterNow.Candidates(w, maps.All(free), r.now)
	first, _ := candidates.Best()
	best := first.Node
	if (best != "") != simulated || simulated && best != nodeName(place.Node) {
		r.Errorf("%v: the state chooses node %q, the simulation %t, node %d", w.Containers[0].Request, best, simulated,
			place.Node)
	}
	if best == "" || r.Failed() {
		return false
	}
	plan, err := r.clusterNow.Reserve(w, best, r.now)
	if err != nil {
		r.Fatal(err)
	}
	if err := r.c.Take(q, place); err != nil {
		r.Fatal(err)
	}
	p.Node, p.Annotations = best, scheduler.Annotations(plan)
	r.clusterNow.Pod(p, w, r.now)
	r.lives = append(r.lives, replayed{p, plan, place.Node, q, place})
	r.tell(place.Node)
	return true
}

// leave ends a pod, and its node has let go of it.
func (r *replay) leave(i int) {
	l := r.lives[i]
	r.lives = slices.Delete(r.lives, i, i+1)
	r.c.Release(l.claim, l.place)
	r.clusterNow.PodRemoved(l.pod.UID, r.now)
	r.tell(l.node)
}

// tell brings the node's report, and compares what is left of its GPUs, each the same as one of the simulation's.
func (r *replay) tell(node int) {
	var holds []hold
	for _, l := range r.lives {
		if l.node != node {
			continue
		}
		for _, f := range l.plan[0].Placement {
			g := slices.IndexFunc(statusOf(node, replayGPUs).GPUs, func(o gpu) bool { return o.UUID == f.GPU.String() })
			h := hold{uid: l.pod.UID, gpu: g}
			if !f.Whole {
				h.bytes, h.per = int64(f.Memory), int(f.Percent)
			}
			holds = append(holds, h)
		}
	}
	s := statusOf(node, replayGPUs, holds...)
	r.clusterNow.Report(nodeName(node), s)
	r.clusterNow.Heartbeat(nodeName(node), r.now, 100*time.Hour, r.now)
	var left, simulated []int
	for g := range s.GPUs {
		left = append(left, s.GPUs[g].FreePercent*10)
		simulated = append(simulated, int(r.c.Node(node).GPUs[g]))
	}
	slices.Sort(left)
	slices.Sort(simulated)
	if !slices.Equal(left, simulated) {
		r.Errorf("node %d has %v left on its GPUs, simulated %v", node, left, simulated)
	}
}
