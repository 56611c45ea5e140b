// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package bound tells when no packing whatever has room for requests, so that no policy is to blame for a refusal.
//
// It promises that what it calls impossible is. The proof is checked in integers, by prices at which the requests are
// worth more than all that the nodes have. It does not promise to see all that is impossible. It ignores which node of
// its kind a CPU belongs to, and that requests are whole. It also ignores that the parts of a request for several GPUs
// go to one node. It moves nothing, and knows no time.
package bound

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Capacity is what the nodes of a cluster have, used or free.
type Capacity struct {
	kinds []kind
	// nodes has one node of each kind, empty.
	nodes *cluster.Cluster
	// gpus and cpu are of all nodes together.
	gpus, cpu int64
}

// kind is the nodes that differ in nothing but their name.
type kind struct {
	nodes int64
	// of one node: its GPUs, thousandths of a core, and MiB.
	gpus, cpu, memory int64
}

// New counts the nodes by kind. They are as they come, before anything is placed. A partly free GPU counts as whole,
// and cordoned nodes have no free capacity.
func New(nodes []cluster.Node) *Capacity {
	r := &Capacity{}
	places := map[alike]int{}
	var models []cluster.Node
	for i := range nodes {
		n := &nodes[i]
		key := alikeOf(n)
		if n.Cordoned {
			continue
		}
		at, known := places[key]
		if !known {
			at = len(r.kinds)
			places[key] = at
			r.kinds = append(r.kinds, kind{gpus: int64(key.gpus), cpu: int64(n.CPU), memory: int64((n.Memory + sharing.MiB - 1) / sharing.MiB)}) //nolint:gosec // far below
			models = append(models, key.node())
		}
		r.kinds[at].nodes++
		r.gpus += int64(key.gpus)
		r.cpu += int64(n.CPU)
	}
	r.nodes = cluster.New(models, nil)
	return r
}

// alike is all by which a request may tell two nodes apart.
type alike struct {
	cpu        cluster.Milli
	memory     sharing.Bytes
	model      string
	gpus       int
	gpuMemory  sharing.Bytes
	overcommit sharing.Overcommit
	level      sharing.Level
	table      *mig.Table
}

func alikeOf(n *cluster.Node) alike {
	a := alike{cpu: n.CPU, memory: n.Memory, model: n.Model, gpuMemory: n.GPUMemory, overcommit: n.Overcommit,
		level: n.Level, table: n.Table}
	for _, left := range n.GPUs {
		if left > 0 {
			a.gpus++
		}
	}
	return a
}

// item is the requests that are the same, in shares of one GPU each; one share where no GPU is asked for.
type item struct {
	wanted int64
	// units is how many shares a request has. CPU (thousandths of a core) and memory (MiB, rounded down) are a
	// request's.
	units, cpu, memory int64
	// share is what one share takes of a GPU of each kind, 0 where none is asked for; barred where the kind cannot
	// answer.
	share []int64
	// size is what one share counts for when as much as can be is placed.
	size float64
}

const barred = -1

// items are the requests in a fixed order. It is false if no node can answer one of them even when it is empty.
func (r *Capacity) items(requests map[cluster.Request]int) ([]item, bool) {
	var list []item
	for _, q := range slices.SortedFunc(maps.Keys(requests), compare) {
		if requests[q] <= 0 {
			continue
		}
		it := item{units: int64(max(1, q.GPUs)), cpu: int64(q.CPU), memory: int64(q.Memory / sharing.MiB)} //nolint:gosec // far below
		it.wanted = int64(requests[q]) * it.units
		least, some := int64(cluster.WholeGPU), false
		for k := range r.kinds {
			share := r.share(k, q)
			it.share = append(it.share, share)
			if share != barred {
				some, least = true, min(least, share)
			}
		}
		if !some {
			return nil, false
		}
		it.size = float64(least) / float64(cluster.WholeGPU)
		if q.GPUs == 0 {
			it.size = cpuWorth * float64(q.CPU) / float64(max(1, r.cpu)) * float64(max(1, r.gpus))
		}
		list = append(list, it)
	}
	return list, true
}

// cpuWorth is how much a request without a GPU counts for, compared with the GPUs that go with that CPU. It changes
// nothing in what is true, and is above nothing for requests that ask for CPU.
const cpuWorth = 0.5

// share is what a request takes of each GPU of the kind, at least.
func (r *Capacity) share(k int, q cluster.Request) int64 {
	n := r.nodes.Node(k)
	if cluster.Evaluate(n, q) != cluster.Fits {
		return barred
	}
	if q.GPUs == 0 {
		return 0
	}
	if n.Table != nil {
		p, _ := n.Instance(q.Shape) // it fits, so there is one
		// rounded down, so that as many fit as there are
		return int64(cluster.WholeGPU) * int64(p.Size) / int64(n.Table.Axis())
	}
	return int64(n.Resolve(q.Shape).Share)
}

func compare(a, b cluster.Request) int {
	return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Share, b.Share), cmp.Compare(a.CPU, b.CPU),
		cmp.Compare(a.Memory, b.Memory),
		cmp.Compare(a.Models, b.Models), cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.GPUMemory, b.GPUMemory),
		cmp.Compare(a.Level, b.Level))
}

func (a alike) node() cluster.Node {
	n := cluster.Node{CPU: a.cpu, Memory: a.memory, Model: a.model, GPUMemory: a.gpuMemory, Overcommit: a.overcommit,
		Level: a.level, Table: a.table}
	for range a.gpus {
		n.GPUs = append(n.GPUs, cluster.WholeGPU)
	}
	return n
}
