// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"container/heap"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// Pool is a part of all GPUs as if they were one: no node, no GPU and no CPU limits a pod. It rejects a request for the
// load alone, whatever the policy.
type Pool struct {
	room, used, rejected cluster.Milli
	leaving              departures
}

// NewPool is a Pool of this part of the nodes' GPUs, 0 to 1.
func NewPool(nodes []cluster.Node, usable float64) *Pool {
	capacity := cluster.Milli(0)
	for i := range nodes {
		capacity += nodes[i].Free()
	}
	return &Pool{room: cluster.Milli(usable * float64(capacity))}
}

// Begin implements simulate.Observer.
func (p *Pool) Begin() { p.rejected = 0 }

// Arrived implements simulate.Observer.
func (p *Pool) Arrived(pod *simulate.Pod, at, leaves float64) {
	for len(p.leaving) > 0 && p.leaving[0].at <= at {
		gone, _ := heap.Pop(&p.leaving).(departure)
		p.used -= gone.demand
	}
	if p.used+pod.Demand() > p.room {
		p.rejected += pod.Demand()
		return
	}
	p.used += pod.Demand()
	heap.Push(&p.leaving, departure{leaves, pod.Demand()})
}

// Placed implements simulate.Observer.
func (p *Pool) Placed(*simulate.Pod) {}

// Left implements simulate.Observer.
func (p *Pool) Left(*simulate.Pod) {}

// Refused implements simulate.Observer.
func (p *Pool) Refused(*simulate.Pod, string) {}

// Report implements simulate.Observer.
func (p *Pool) Report(r *simulate.Result, demand cluster.Milli) {
	r.Pooled, r.PooledRejectedPercent = true, simulate.Percent(p.rejected, demand)
}

type departure struct {
	at     float64
	demand cluster.Milli
}

// departures is a heap, the soonest first.
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any) {
	if v, ok := x.(departure); ok {
		*d = append(*d, v)
	}
}
func (d *departures) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}
