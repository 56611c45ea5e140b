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

// One core decides for 5,000 nodes of 8 GPUs while requests come and go; the memory is that of the whole cluster.
func BenchmarkChoose5000Nodes(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := rand.New(rand.NewPCG(3, 3))
	_, requests := mix(r, 4096)
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
	var holds []held
	took := make([]time.Duration, 0, 1<<20)
	place := func(i int) {
		q := requests[i%len(requests)]
		begin := time.Now()
		p, ok := c.Choose(q)
		if took = append(took, time.Since(begin)); len(took) == cap(took) {
			took = took[:0]
		}
		if ok {
			if err := c.Take(q, p); err != nil {
				b.Fatal(err)
			}
			holds = append(holds, held{q, p})
		}
		if len(holds) > 30000 {
			h := holds[i%len(holds)]
			holds[i%len(holds)] = holds[len(holds)-1]
			holds = holds[:len(holds)-1]
			c.Release(h.request, h.placement)
		}
	}
	for i := range 40000 {
		place(i)
	}
	took = took[:0]
	for i := 0; b.Loop(); i++ {
		place(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc-uint64(cap(took)*8))/(1<<20), "MiB")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	runtime.KeepAlive(c)
}

// Instances that come and go on GPUs in MIG mode: with few GPUs their room is valued anew with each decision, with many once
// in a while.
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
		nodes = append(nodes, cluster.Node{CPU: 96000, Memory: 1 << 40, Model: "A", GPUs: slices.Repeat([]cluster.Milli{cluster.WholeGPU}, 8)})
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
