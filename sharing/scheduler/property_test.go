// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

var (
	steps = flag.Int("steps", 10_000, "random steps of the property test")
	seed  = flag.Uint64("seed", 11, "seed of the property test")
)

const (
	worldNodes = 3
	worldGPUs  = 3
)

// life is a pod in the naive world: what the API server and its node know of it.
type life struct {
	pod  sharing.Pod
	node int
	// bound is true once the state has its binding, gone once it is deleted, heard once the state knows that.
	bound, gone, heard bool
	// gpus is where the cluster state planned it; claimed where its node put it; nil before.
	gpus, claimed []int
}

// agentWorld is nodes with agents that claim, report and let go in their own time. It counts by hand.
type agentWorld struct {
	*testing.T
	rand       *rand.Rand
	now        time.Time
	clusterNow *scheduler.ClusterState
	lives      []*life
	// next numbers the pods; placed and full count those that were placed, and those that did not fit.
	next, placed, full int
}

func TestNothingIsBookedTwice(t *testing.T) {
	w := &agentWorld{T: t, rand: rand.New(rand.NewPCG(*seed, 0)), now: noon(),
		clusterNow: clusterStateOf(worldNodes, worldGPUs)}
	for range *steps {
		w.now = w.now.Add(time.Duration(w.rand.IntN(900)) * time.Millisecond)
		w.step()
		if t.Failed() {
			return
		}
	}
	if w.placed < *steps/20 || w.full < *steps/100 {
		t.Errorf("%d placed and %d refused for want of room: too few to show anything", w.placed, w.full)
	}
}

func (w *agentWorld) step() {
	switch n := w.rand.IntN(20); {
	case n < 6:
		w.arrive()
	case n < 9:
		w.each(func(l *life) bool { return !l.bound }, func(l *life) {
			l.bound = true
			w.clusterNow.Pod(l.pod, want(w, l.pod), w.now)
		})
	case n < 12:
		w.each(func(l *life) bool { return l.claimed == nil && !l.gone }, w.claim)
	case n < 14:
		w.each(func(l *life) bool { return !l.gone }, func(l *life) { l.gone = true })
	case n < 16: // its node lets go, of what it had claimed or not
		w.each(func(l *life) bool { return l.gone && l.claimed != nil }, func(l *life) { l.claimed = nil })
	case n < 17:
		w.each(func(l *life) bool { return l.gone && !l.heard }, func(l *life) {
			l.heard = true
			if w.rand.IntN(2) == 0 {
				l.pod.Terminal = true
				w.clusterNow.Pod(l.pod, want(w, l.pod), w.now)
			}
			w.clusterNow.PodRemoved(l.pod.UID, w.now)
		})
	default:
		w.tell(w.rand.IntN(worldNodes))
	}
	w.lives = slices.DeleteFunc(w.lives, func(l *life) bool { return l.heard && l.claimed == nil && !l.bound })
	if w.rand.IntN(50) == 0 {
		w.restart()
	}
}

func (w *agentWorld) each(which func(*life) bool, do func(*life)) {
	some := slices.Clone(w.lives)
	some = slices.DeleteFunc(some, func(l *life) bool { return !which(l) })
	if len(some) > 0 {
		do(some[w.rand.IntN(len(some))])
	}
}

// arrive offers a pod to the cluster state, which places it where it reports that the pod fits.
func (w *agentWorld) arrive() {
	w.next++
	limits := memory(1 + w.rand.IntN(79))
	switch w.rand.IntN(4) {
	case 0:
		limits = whole(1 + w.rand.IntN(2))
	case 1:
		limits[sharing.ResourcePercent] = fmt.Sprint(1 + w.rand.IntN(100))
	}
	p := podOf(fmt.Sprintf("p%05d", w.next), limits)
	first := w.rand.IntN(worldNodes)
	for i := range worldNodes {
		n := (first + i) % worldNodes
		if w.clusterNow.Fit(want(w, p), nodeName(n), w.now).Reason != scheduler.Fits {
			continue
		}
		plan, err := w.clusterNow.Reserve(want(w, p), nodeName(n), w.now)
		if err != nil {
			w.Errorf("it fitted: %v", err)
			return
		}
		if w.rand.IntN(5) == 0 {
			w.clusterNow.Unreserve(p.UID)
			return
		}
		p.Node = nodeName(n)
		maps.Copy(p.Annotations, scheduler.Annotations(plan))
		l := &life{pod: p, node: n}
		for _, f := range plan[0].Placement {
			l.gpus = append(l.gpus, slices.IndexFunc(statusOf(n, worldGPUs).GPUs,
				func(g gpunode.GPU) bool { return g.UUID == f.GPU.String() }))
		}
		w.lives = append(w.lives, l)
		w.placed++
		return
	}
	w.full++
}

// claim is the agent's: it takes the plan, and what does not fit there is a double booking.
func (w *agentWorld) claim(l *life) {
	s := w.truth(l.node)
	r := want(w, l.pod).Containers[0].Request
	for _, g := range l.gpus {
		has := s.GPUs[g]
		f := r.On(sharing.GPU{Memory: 79 * sharing.GiB})
		if int64(f.Memory) > has.FreeBytes || int(f.Percent) > has.FreePercent || f.Whole && has.GrantedBytes > 0 {
			w.Errorf("step of pod %s: GPU %d of node %d has %d GiB and %d%%, and %v was planned there", l.pod.Name, g,
				l.node, has.FreeBytes>>30, has.FreePercent, r)
		}
	}
	l.claimed = l.gpus
}

// truth is the report that a node's agent would write now.
func (w *agentWorld) truth(node int) gpunode.Status {
	var holds []hold
	for _, l := range w.lives {
		if l.node != node {
			continue
		}
		r := want(w, l.pod).Containers[0].Request
		for _, g := range l.claimed {
			m, p := r.Each()
			holds = append(holds, hold{uid: l.pod.UID, gpu: g, memory: int64(m) / gib, per: int(p)})
		}
	}
	return statusOf(node, worldGPUs, holds...)
}

// tell brings a report and a heartbeat, as the agent does: the report is written before.
func (w *agentWorld) tell(node int) {
	w.clusterNow.Report(nodeName(node), w.truth(node))
	w.clusterNow.Heartbeat(nodeName(node), w.now, time.Hour, w.now)
	w.lives = slices.DeleteFunc(w.lives, func(l *life) bool { return l.heard && l.claimed == nil && l.node == node })
}

// restart builds a new cluster state from what the API server has. If no pod is between two states, both are equal.
func (w *agentWorld) restart() {
	for n := range worldNodes {
		w.tell(n)
	}
	w.lives = slices.DeleteFunc(w.lives, func(l *life) bool { return l.gone && l.claimed == nil && w.leave(l) })
	for _, l := range w.lives {
		if !l.bound {
			l.bound = true
			w.clusterNow.Pod(l.pod, want(w, l.pod), w.now)
		}
		if l.gone && !l.heard {
			l.heard = true
			w.clusterNow.PodRemoved(l.pod.UID, w.now)
		}
	}
	w.now = w.now.Add(time.Minute)
	again := clusterStateOf(worldNodes, worldGPUs)
	for i := range w.lives {
		if l := w.lives[len(w.lives)-1-i]; !l.gone {
			again.Pod(l.pod, want(w, l.pod), w.now)
		}
	}
	for n := range worldNodes {
		w.tell(n)
		again.Report(nodeName(n), w.truth(n))
		again.Heartbeat(nodeName(n), w.now, time.Hour, w.now)
	}
	for n := range worldNodes {
		for size := 1; size < 80; size += 13 {
			for g := range worldGPUs {
				p := want(w, podOf("probe", memory(size), "kerf.dev/gpu-uuid", uuid(n, g)))
				was, is := w.clusterNow.Fit(p, nodeName(n), w.now), again.Fit(p, nodeName(n), w.now)
				if was.Reason != is.Reason {
					w.Errorf("%d GiB on GPU %d of node %d: %q before the restart (%s), %q after (%s)", size, g, n,
						was.Reason, was.Text, is.Reason, is.Text)
				}
			}
		}
	}
	w.clusterNow = again
}

// leave reports to the cluster state that a pod is gone, and is always true.
func (w *agentWorld) leave(l *life) bool {
	w.clusterNow.PodRemoved(l.pod.UID, w.now)
	return true
}
