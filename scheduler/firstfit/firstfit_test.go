// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package firstfit_test compares the policy dra-firstfit of kerf-lab with kube-scheduler. It is in this module because
// only this one has the code of Kubernetes.
package firstfit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/lab/policy/dra"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// labNodes differ in everything, so that no two of them have equal points.
func labNodes() []cluster.Node {
	var out []cluster.Node
	for i, of := range [][3]int{{61_300, 211, 2}, {97_700, 307, 4}, {83_100, 401, 3}} {
		out = append(out, cluster.Node{Name: fmt.Sprintf("node-%d", i), CPU: cluster.Milli(of[0]),
			Memory: sharing.Bytes(of[1]) * sharing.GiB, GPUs: slices.Repeat([]cluster.Milli{cluster.WholeGPU}, of[2])})
	}
	return out
}

// drawPod is a pod with a share, whole GPUs or none.
func drawPod(name string, draw *rand.Rand) simulate.Pod {
	p := simulate.Pod{Name: name}
	p.CPU = cluster.Milli(1000 + 100*draw.IntN(70))
	p.Memory = sharing.Bytes(2+draw.IntN(14)) * sharing.GiB
	switch draw.IntN(10) {
	case 0: // CPU alone
	case 1, 2:
		p.GPUs, p.Share = 1+draw.IntN(2), cluster.WholeGPU
	default:
		p.GPUs, p.Share = 1, cluster.Milli(50*(1+draw.IntN(9)))
	}
	return p
}

// lab is the policy dra-firstfit with several seeds, on equal clusters.
type lab []*cluster.Cluster

func newLab(t *testing.T) (out lab) {
	for seed := range int64(24) {
		policy, err := dra.New("dra-firstfit", labNodes(), nil, seed)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, cluster.New(labNodes(), policy))
	}
	return out
}

// choose is the choice of all seeds; false if they differ, because nodes have equal points.
func (l lab) choose(r cluster.Request) (cluster.Placement, bool, bool) {
	first, fits := l[0].Choose(r)
	for _, c := range l[1:] {
		if other, ok := c.Choose(r); ok != fits || ok && other.Node != first.Node {
			return first, fits, false
		}
	}
	return first, fits, true
}

// TestFirstFitIsKubeScheduler: for each of 30 pods on 3 nodes, dra-firstfit takes the node and the GPUs that
// kube-scheduler with parallelism 1 takes. kube-scheduler decides by chance among nodes with equal points. So pods are
// left out if seeds of the policy differ.
func TestFirstFitIsKubeScheduler(t *testing.T) {
	kube, policy := startScheduler(t, labNodes()), newLab(t)
	draw := rand.New(rand.NewPCG(7, 30))
	pods, rejected, drawn := 0, 0, 0
	for ; pods < 30; drawn++ {
		pod := drawPod(fmt.Sprintf("pod-%02d", pods), draw)
		p, fits, certain := policy.choose(pod.Request)
		if !certain {
			continue
		}
		pods++
		want := outcome{}
		if fits {
			want = outcome{policy[0].Node(p.Node).Name, p.GPUs}
			for _, c := range policy {
				if err := c.Take(pod.Request, p); err != nil {
					t.Fatal(err)
				}
			}
		} else {
			rejected++
		}
		if got := kube.schedule(pod); got.node != want.node || !slices.Equal(got.gpus, want.gpus) {
			t.Fatalf("%s, %+v: kube-scheduler takes %+v, dra-firstfit %+v", pod.Name, pod.Request, got, want)
		}
	}
	if rejected < 3 || rejected > 15 {
		t.Errorf("of %d pods, %d are rejected: too few of one kind", pods, rejected)
	}
	t.Logf("%d pods, %d rejected; %d left out", pods, rejected, drawn-pods)
}
