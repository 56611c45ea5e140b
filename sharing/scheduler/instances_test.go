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

// cutLife is a pod on an instance; reported is true once its node has reported it.
type cutLife struct {
	migGrant
	node     int
	reported bool
}

// cutWorld counts placement units and compute slices by hand.
type cutWorld struct {
	*testing.T
	books *scheduler.ClusterState
	lives []*cutLife
}

// units are those that are taken on each GPU, and the compute slices.
func (w *cutWorld) units(node, gpu int) (taken [8]bool, compute int, counts map[string]int) {
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
func (w *cutWorld) fits(node, gpu, profile int) bool {
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

func (w *cutWorld) report(node int, all bool) {
	var pieces []migGrant
	for _, l := range w.lives {
		if l.node == node {
			l.reported = l.reported || all
			if l.reported {
				pieces = append(pieces, l.migGrant)
			}
		}
	}
	w.books.Report(nodeName(node), cutStatus(node, worldGPUs, pieces...))
}

// The accounting of MIG instances equals a model that counts units one by one: the same requests fit, and nothing is
// granted twice.
func TestInstancesAsCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 1))
	w := &cutWorld{T: t, books: booksOf(worldNodes, worldGPUs)}
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
			plan, err := w.books.Reserve(want(t, p), nodeName(n), now)
			if fits != (err == nil) {
				t.Fatalf("step %d: %s on node %d: counted %t, books say %v", step, slices7()[which].Name, n, fits, err)
			}
			if err != nil {
				full++
				continue
			}
			placed++
			f := plan[0].Placement[0]
			gpu := slices.IndexFunc([]int{0, 1, 2}, func(g int) bool { return uuid(n, g) == f.GPU.String() })
			w.lives = append(w.lives, &cutLife{migGrant: migGrant{p.UID, gpu, f.MIG.Profile, f.MIG.Start}, node: n})
			w.units(n, gpu)
			p.Node = nodeName(n)
			maps.Copy(p.Annotations, scheduler.Annotations(plan))
			w.books.Pod(p, want(t, p), now)
		case 2: // one that its node has reported ends, and the node says so
			if i := slices.IndexFunc(w.lives, func(l *cutLife) bool {
				return l.reported && random.IntN(4) == 0
			}); i >= 0 {
				l := w.lives[i]
				w.lives = slices.Delete(w.lives, i, i+1)
				w.books.Gone(l.uid, now)
				w.report(l.node, false)
			}
		default:
			w.report(random.IntN(worldNodes), true)
		}
		for n := range worldNodes {
			w.books.Heartbeat(nodeName(n), now, 40*time.Second, now)
		}
	}
	if placed < *steps/100 || full < *steps/200 {
		t.Errorf("%d placed and %d refused: too few to show anything", placed, full)
	}
}
