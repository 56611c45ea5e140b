// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// instanceLife is a pod on an instance; reported is true once its node has reported it.
type instanceLife struct {
	migGrant
	node     int
	reported bool
}

// migWorld counts placement units and compute slices by hand.
type migWorld struct {
	*testing.T
	clusterNow *scheduler.ClusterState
	lives      []*instanceLife
}

// units are those that are taken on each GPU, and the compute slices.
func (w *migWorld) units(node, gpu int) (taken [8]bool, compute int, counts map[string]int) {
	counts = map[string]int{}
	for _, l := range w.lives {
		if l.node != node || l.gpu != gpu {
			continue
		}
		p := profileOf(l.profile)
		for u := l.start; u < l.start+slices7()[p].MemorySlices; u++ {
			if taken[u] {
				w.Fatalf("node %d GPU %d: unit %d is given twice", node, gpu, u)
			}
			taken[u] = true
		}
		compute += slices7()[p].Compute
		counts[l.profile]++
	}
	return taken, compute, counts
}

// fits is whether the GPU has a place for the profile.
func (w *migWorld) fits(node, gpu, profile int) bool {
	p := slices7()[profile]
	taken, compute, counts := w.units(node, gpu)
	return compute+p.Compute <= 7 && counts[p.Name] < p.MaxInstances && slices.ContainsFunc(p.PlacementStarts,
		func(start int) bool {
			return !slices.Contains(taken[start:start+p.MemorySlices], true)
		})
}

func profileOf(name string) int {
	return slices.IndexFunc(slices7(), func(p gpunode.MIGProfile) bool { return p.Name == name })
}

func (w *migWorld) report(node int, all bool) {
	var grants []migGrant
	for _, l := range w.lives {
		if l.node == node {
			l.reported = l.reported || all
			if l.reported {
				grants = append(grants, l.migGrant)
			}
		}
	}
	w.clusterNow.Report(nodeName(node), migStatus(node, worldGPUs, grants...))
}

// The accounting of MIG instances equals a model that counts units one by one: the same requests fit, and nothing is
// granted twice.
func TestInstancesAsCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 1))
	w := &migWorld{T: t, clusterNow: clusterStateOf(worldNodes, worldGPUs)}
	for n := range worldNodes {
		w.report(n, true)
	}
	now, placed, full := noon(), 0, 0
	for step := range *steps / 10 {
		now = now.Add(10 * time.Millisecond)
		switch random.IntN(5) {
		case 0, 1:
			which := random.IntN(len(slices7()))
			p := podOf(fmt.Sprintf("p%05d", step), mig(slices7()[which].Name))
			n := random.IntN(worldNodes)
			fits := slices.ContainsFunc([]int{0, 1, 2}, func(g int) bool { return w.fits(n, g, which) })
			plan, err := w.clusterNow.Reserve(want(t, p), nodeName(n), now)
			if fits != (err == nil) {
				t.Fatalf("step %d: %s on node %d: counted %t, the state says %v", step, slices7()[which].Name, n, fits,
					err)
			}
			if err != nil {
				full++
				continue
			}
			placed++
			f := plan[0].Placement[0]
			gpu := slices.IndexFunc([]int{0, 1, 2}, func(g int) bool { return uuid(n, g) == f.GPU.String() })
			grant := migGrant{p.UID, gpu, f.MIG.Profile, f.MIG.Start}
			w.lives = append(w.lives, &instanceLife{migGrant: grant, node: n})
			w.units(n, gpu)
			p.Node = nodeName(n)
			maps.Copy(p.Annotations, scheduler.Annotations(plan))
			w.clusterNow.Pod(p, want(t, p), now)
		case 2: // one that its node has reported ends, and the node says so
			if i := slices.IndexFunc(w.lives, func(l *instanceLife) bool {
				return l.reported && random.IntN(4) == 0
			}); i >= 0 {
				l := w.lives[i]
				w.lives = slices.Delete(w.lives, i, i+1)
				w.clusterNow.PodRemoved(l.uid, now)
				w.report(l.node, false)
			}
		default:
			w.report(random.IntN(worldNodes), true)
		}
		for n := range worldNodes {
			w.clusterNow.Heartbeat(nodeName(n), now, 40*time.Second, now)
		}
	}
	if placed < *steps/100 || full < *steps/200 {
		t.Errorf("%d placed and %d refused: too few to show anything", placed, full)
	}
}
