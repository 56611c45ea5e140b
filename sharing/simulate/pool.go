// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"container/heap"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// pool is all GPUs as if they were one: no node, no GPU and no CPU stands in the way of a pod. What it refuses is refused
// for the load alone, whatever the policy.
type pool struct {
	room, used, rejected cluster.Milli
	leaving              departures
}

// until lets pods leave that have left by then.
func (p *pool) until(at float64) {
	for len(p.leaving) > 0 && p.leaving[0].at <= at {
		gone, _ := heap.Pop(&p.leaving).(departure)
		p.used -= gone.pod.Demand()
	}
}

func (p *pool) arrive(pod *Pod, leaves float64) {
	if p.used+pod.Demand() > p.room {
		p.rejected += pod.Demand()
		return
	}
	p.used += pod.Demand()
	heap.Push(&p.leaving, departure{leaves, held{pod: pod}})
}
