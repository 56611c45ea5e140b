// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/defrag/state"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const gib = int64(sharing.GiB)

func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// built is a cluster of nodes, each with its report.
type built struct {
	state.Input
	reports []gpunode.Status
}

func uuid(node, g int) string { return fmt.Sprintf("GPU-00000000-0000-0000-%04d-%012d", node, g) }

// profiles is a MIG geometry with two profiles.
func profiles() []gpunode.MIGProfile {
	return []gpunode.MIGProfile{
		{Name: "1g.10gb", ID: 19, Compute: 1, MemoryBytes: 10 * gib, MaxInstances: 7, MemorySlices: 1,
			PlacementStarts: []int{0, 1, 2, 3, 4, 5, 6}},
		{Name: "7g.80gb", ID: 0, Compute: 7, MemoryBytes: 80 * gib, MaxInstances: 1, MemorySlices: 8,
			PlacementStarts: []int{0}},
	}
}

func clusterOf(nodes, gpus int, mig bool) *built {
	b := &built{Input: state.Input{State: scheduler.New(), Free: map[string]scheduler.Free{},
		Rules: state.Rules{Any: true}, Now: noon()}}
	for n := range nodes {
		s := gpunode.Status{Pool: "default", Conditions: []gpunode.Condition{{Type: gpunode.ConditionReady,
			Status: gpunode.True}}}
		for g := range gpus {
			one := gpunode.GPU{UUID: uuid(n, g), Index: g, Model: "H100", CapacityBytes: 80 * gib,
				AllocatableBytes: 79 * gib, FreeBytes: 79 * gib, FreePercent: 100, Health: "healthy",
				Levels: []string{"driver"}}
			if mig {
				one.MIG, one.FreeBytes, one.FreePercent, one.Levels = true, 0, 0, nil
				one.MIGState = &gpunode.MIGState{MemorySlices: 8, Geometry: profiles()}
			}
			s.GPUs = append(s.GPUs, one)
		}
		b.reports = append(b.reports, s)
	}
	return b
}

// pod adds a pod; node is -1 for a pending one.
func (b *built) pod(t testing.TB, name string, node, gpu int, limits map[string]string,
	share gpunode.Share) *state.Pod {
	t.Helper()
	p := state.Pod{Owner: "ReplicaSet x", Started: noon().Add(-time.Hour)}
	p.Pod = sharing.Pod{UID: name, Namespace: "ns", Name: name, Annotations: map[string]string{},
		Containers: []sharing.PodContainer{{Name: "main", Limits: limits}}}
	if node >= 0 {
		p.Node = nodeName(node)
		r := &b.reports[node]
		share.GPU = uuid(node, gpu)
		if share.MIGProfile == "" {
			r.GPUs[gpu].FreeBytes -= share.MemoryBytes
		}
		r.Grants = append(r.Grants, gpunode.Grant{ID: name, PodUID: name, Container: "main",
			Shares: []gpunode.Share{share}})
	}
	w, ok, err := scheduler.PodRequestOf(p.Pod)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	p.Request = w
	b.Pods = append(b.Pods, p)
	return &b.Pods[len(b.Pods)-1]
}

func nodeName(i int) string { return fmt.Sprintf("n%04d", i) }

// board reports all nodes and pods.
func (b *built) board() *state.ClusterState {
	for n := range b.reports {
		r := &b.reports[n]
		r.Fingerprint = gpunode.Fingerprint(r.Grants)
		name := nodeName(n)
		b.State.Machine(name, scheduler.Machine{CPU: 64000, Memory: 512 * sharing.GiB, Allocatable: map[string]int64{
			sharing.ResourceMemory: 632, sharing.ResourceGPU: 8, "kerf.dev/mig-1g.10gb": 56,
			"kerf.dev/mig-7g.80gb": 8}})
		b.State.Report(name, *r)
		b.State.Heartbeat(name, noon(), time.Hour, noon())
		b.Free[name] = scheduler.Free{CPU: 64000, Memory: 512 * sharing.GiB}
	}
	for i := range b.Pods {
		b.State.Pod(b.Pods[i].Pod, b.Pods[i].Request, noon())
	}
	return state.New(b.Input)
}

func memory(n int) (map[string]string, gpunode.Share) {
	return map[string]string{sharing.ResourceMemory: fmt.Sprint(n)}, gpunode.Share{MemoryBytes: int64(n) * gib}
}

// moves are the moves of a plan in words.
func moves(b *state.ClusterState) string {
	plan := b.Make()
	var out []string
	for _, s := range plan.Steps {
		for _, m := range s.Moves {
			out = append(out, b.Pods[m.Pod].Name+" "+b.Text(m.From)+" "+b.Text(m.To))
		}
		for _, f := range s.Fits {
			out = append(out, b.Pods[f.Pod].Name+" gets "+b.Text(f.To))
		}
	}
	return strings.Join(out, ", ")
}

// Shares and MIG instances move to where the scheduler's own functions have room for them, so that the pending pod
// fits. Pods that must stay do.
func TestMoves(t *testing.T) {
	t.Parallel()
	small := func(b *built, name string, node, gpu int) *state.Pod {
		limits, share := memory(30)
		return b.pod(t, name, node, gpu, limits, share)
	}
	for name, tc := range map[string]struct {
		make func() *built
		want string
	}{
		"whole GPUs": {func() *built {
			b := clusterOf(2, 2, false)
			small(b, "a", 0, 0)
			small(b, "b", 1, 0)
			small(b, "c", 1, 1)
			b.pod(t, "big", -1, 0, map[string]string{sharing.ResourceGPU: "2"}, gpunode.Share{})
			return b
		}, "a n0000/0 n0001/0, big gets n0000/0,1"},
		"a share": {func() *built {
			b := clusterOf(2, 1, false)
			small(b, "a", 0, 0).Gang = true
			small(b, "b", 1, 0)
			limits, _ := memory(60)
			b.pod(t, "big", -1, 0, limits, gpunode.Share{})
			return b
		}, "b n0001/0 n0000/0, big gets n0001/0"},
		"MIG instances": {func() *built {
			b := clusterOf(2, 1, true)
			one := map[string]string{"kerf.dev/mig-1g.10gb": "1"}
			share := gpunode.Share{MemoryBytes: 10 * gib, MIGProfile: "1g.10gb"}
			b.pod(t, "a", 0, 0, one, share)
			b.pod(t, "b", 1, 0, one, share)
			b.Pods[1].Gang = true
			b.pod(t, "big", -1, 0, map[string]string{"kerf.dev/mig-7g.80gb": "1"}, gpunode.Share{})
			return b
		}, "a n0000/0 n0001/0, big gets n0000/0"},
		"nothing may move": {func() *built {
			b := clusterOf(2, 1, false)
			small(b, "a", 0, 0)
			small(b, "b", 1, 0)
			b.Pods[0].Karpenter, b.Pods[1].Owner = "true", ""
			b.pod(t, "big", -1, 0, map[string]string{sharing.ResourceGPU: "1"}, gpunode.Share{})
			return b
		}, ""},
		"a closed machine takes nothing": {func() *built {
			b := clusterOf(2, 1, false)
			small(b, "a", 0, 0)
			small(b, "b", 1, 0)
			b.pod(t, "big", -1, 0, map[string]string{sharing.ResourceGPU: "1"}, gpunode.Share{})
			for i := range b.Pods[:2] {
				b.Pods[i].Request.CPU = 65000
			}
			return b
		}, ""},
	} {
		if got := moves(tc.make().board()); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// fill puts a share with a random run time on GPUs of all nodes.
func (b *built) fill(t testing.TB, r *rand.Rand, size func() (gib int, ok bool)) {
	for n := range b.reports {
		for g := range b.reports[n].GPUs {
			if gib, ok := size(); ok {
				limits, share := memory(gib)
				b.pod(t, fmt.Sprint("p", n, "-", g), n, g, limits, share).Started =
					noon().Add(-time.Duration(r.IntN(100000)) * time.Second)
			}
		}
	}
}

// At 5,000 nodes of 8 GPUs a plan is to take less than 2 s.
func BenchmarkPlan5000Nodes(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		r := rand.New(rand.NewPCG(1, 1))
		c := clusterOf(5000, 8, false)
		c.fill(b, r, func() (int, bool) { return 10 * (1 + r.IntN(4)), r.IntN(3) > 0 })
		for n := 51; n < 5000; n++ { // One GPU of each of these nodes has a pod that stays.
			limits, share := memory(10)
			c.pod(b, fmt.Sprint("k", n), n, 0, limits, share).Gang = true
		}
		c.pod(b, "big", -1, 0, map[string]string{sharing.ResourceGPU: "8"}, gpunode.Share{})
		board := c.board()
		b.StartTimer()
		if plan := board.Make(); len(plan.Steps) == 0 || plan.Partial {
			b.Fatal("no plan, or a partial one")
		}
	}
}

// A plan takes less than 2 s also if many pods with different requests wait and every pod can move.
func BenchmarkPlanManyRequests(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		r := rand.New(rand.NewPCG(1, 1))
		c := clusterOf(5000, 8, false)
		c.fill(b, r, func() (int, bool) { return 10 * (3 + r.IntN(5)), true })
		for i := range 100 {
			c.pod(b, fmt.Sprint("whole", i), -1, 0, map[string]string{sharing.ResourceGPU: fmt.Sprint(1 + i%8)},
				gpunode.Share{})
			limits, _ := memory(79 - i%20)
			c.pod(b, fmt.Sprint("share", i), -1, 0, limits, gpunode.Share{})
		}
		board := c.board()
		b.StartTimer()
		if plan := board.Make(); len(plan.Steps) == 0 {
			b.Fatal("no plan")
		}
	}
}
