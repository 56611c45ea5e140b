// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// busyCluster is a cluster of 5,000 nodes with 8 GPUs each, whose requests come and go.
type busyCluster struct {
	cluster  *cluster.Cluster
	requests []cluster.Request
	holds    []held
}

// newBusyCluster keeps its grants in holds. It has fewer of them at a time than holds has room for.
func newBusyCluster(holds []held) *busyCluster {
	_, requests := mix(rand.New(rand.NewPCG(3, 3)), 4096)
	for i := range requests {
		// Some dozens of shapes, as clusters have them, and not hundreds.
		requests[i].CPU = 8000*cluster.Milli(max(1, requests[i].GPUs)) + requests[i].Share
	}
	var nodes []cluster.Node
	for range 5000 {
		n := cluster.Node{CPU: 96000, Memory: 1 << 40, Model: "A"}
		for range 8 {
			n.GPUs = append(n.GPUs, cluster.WholeGPU)
		}
		nodes = append(nodes, n)
	}
	c := cluster.New(nodes, cluster.NewKerf(cluster.NewWorkload(requests), nodes))
	return &busyCluster{cluster: c, requests: requests, holds: holds}
}

// place decides on request i, and returns how long the decision took.
func (c *busyCluster) place(tb testing.TB, i int) time.Duration {
	q := c.requests[i%len(c.requests)]
	begin := time.Now()
	p, ok := c.cluster.Choose(q)
	took := time.Since(begin)
	if ok {
		if err := c.cluster.Take(q, p); err != nil {
			tb.Fatal(err)
		}
		c.holds = append(c.holds, held{q, p})
	}
	if len(c.holds) == cap(c.holds) {
		h := c.holds[i%len(c.holds)]
		c.holds[i%len(c.holds)] = c.holds[len(c.holds)-1]
		c.holds = c.holds[:len(c.holds)-1]
		c.cluster.Release(h.request, h.placement)
	}
	return took
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// One core decides for 5,000 nodes of 8 GPUs while requests come and go; the memory is that of the whole cluster. It
// fails if p99 exceeds its budget, which is twenty times what docs/benchmarks/scheduler-throughput.md has, so that a
// busy machine meets it, too.
func BenchmarkChoose5000Nodes(b *testing.B) {
	const budget = time.Millisecond
	holds := make([]held, 0, 30001)
	before := heapBytes()
	c := newBusyCluster(holds)
	for i := range 40000 {
		c.place(b, i)
	}
	used := heapBytes() - before
	took := make([]time.Duration, 0, 1<<20)
	for i := 0; b.Loop(); i++ {
		if took = append(took, c.place(b, i)); len(took) == cap(took) {
			took = took[:0]
		}
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	if len(took) >= 10_000 && p99 > budget {
		b.Errorf("p99 of %d decisions is %s, budget %s", len(took), p99, budget)
	}
	b.ReportMetric(float64(p99.Microseconds()), "p99-µs")
	b.ReportMetric(float64(used)/(1<<20), "MiB")
}

// The budget of a cluster of 5,000 nodes with 10,000 grants: memory, and allocations per decision. Both grow at once if
// a decision looks at each node, or copies what it looks at.
func TestBudgetOf5000Nodes(t *testing.T) {
	const memory, allocations = 7 << 20, 6
	holds := make([]held, 0, 10001)
	before := heapBytes()
	c := newBusyCluster(holds)
	i := 0
	for ; i < 20000; i++ {
		c.place(t, i)
	}
	if len(c.holds) != 10000 {
		t.Fatalf("%d grants, want 10,000", len(c.holds))
	}
	used := heapBytes() - before
	if used > memory {
		t.Errorf("the cluster takes %d bytes, budget %d", used, memory)
	}
	per := testing.AllocsPerRun(20000, func() {
		c.place(t, i)
		i++
	})
	if per > allocations {
		t.Errorf("a decision makes %g allocations, budget %d", per, allocations)
	}
	t.Logf("%d KiB, %g allocations per decision", used>>10, per)
}

// Instances come and go on GPUs in MIG mode. With few GPUs, each decision values their free memory slices again. With
// many, only some do.
func BenchmarkChooseInstances(b *testing.B) {
	for _, gpus := range []int{100, 4000} {
		b.Run(strconv.Itoa(gpus), func(b *testing.B) {
			nodes := migNodes(b, gpus/4, 4)
			arrivals := drawn(nodes[0].Table, mixes()["mostly-big"], 1, 4096)
			c := cluster.New(nodes, cluster.NewKerf(cluster.NewWorkload(arrivals), nodes))
			var holds []held
			place := func(i int) {
				q := arrivals[i%len(arrivals)]
				if p, ok := c.Choose(q); ok {
					if err := c.Take(q, p); err != nil {
						b.Fatal(err)
					}
					holds = append(holds, held{q, p})
				}
				if len(holds) > gpus*5/4 {
					c.Release(holds[0].request, holds[0].placement)
					holds = holds[1:]
				}
			}
			for i := range gpus * 3 / 2 {
				place(i)
			}
			for i := 0; b.Loop(); i++ {
				place(i)
			}
		})
	}
}

// What an estimate of the workload costs, and how much more where requests leave.
func BenchmarkEstimate(b *testing.B) {
	_, requests := mix(rand.New(rand.NewPCG(3, 3)), 4096)
	w := cluster.NewWorkload(requests)
	var nodes []cluster.Node
	for range 1000 {
		nodes = append(nodes, cluster.Node{CPU: 96000, Memory: 1 << 40, Model: "A",
			GPUs: slices.Repeat([]cluster.Milli{cluster.WholeGPU}, 8)})
	}
	for _, leave := range []bool{false, true} {
		b.Run("leave="+strconv.FormatBool(leave), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k := cluster.NewKerf(w, nodes)
				for leave && !k.Leave() {
				}
			}
		})
	}
}
