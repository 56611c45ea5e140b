// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/kerf-gpu/kerf/sharing/allocator/cluster"

// The policies of this file are models of what clusters run today, made from what those projects document.
// They say what a way of booking costs, not how well a project's code does it.

// WholeOnly gives every request whole GPUs, as NVIDIA's device plugin does. It takes the node with the most CPU and
// memory left, as kube-scheduler does by default.
type WholeOnly struct{}

// Charge implements Charger: a share takes the whole GPU.
func (WholeOnly) Charge(r cluster.Request) cluster.Request {
	if r.GPUs > 0 {
		r.Share, r.GPUMemory = cluster.WholeGPU, 0
	}
	return r
}

// Score implements Policy.
func (WholeOnly) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	return leastAllocated(n, s), cluster.Tightest(n, s)
}

// timeSlices is how many replicas of a GPU TimeSlice offers.
const timeSlices = 4

// TimeSlice is time slicing with four replicas of each GPU. Nothing but the count of replicas bounds a share,
// so one above a quarter, or by memory, is given a whole GPU. The replica is one of the GPU with the most left.
type TimeSlice struct{}

// Charge implements Charger: a share takes a replica, or the whole GPU.
func (TimeSlice) Charge(r cluster.Request) cluster.Request {
	switch {
	case r.GPUs == 0:
	case r.Share <= cluster.WholeGPU/timeSlices && r.GPUMemory == 0:
		r.Share = cluster.WholeGPU / timeSlices
	default:
		r.Share, r.GPUMemory = cluster.WholeGPU, 0
	}
	return r
}

// Score implements Policy.
func (TimeSlice) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	return leastAllocated(n, s), cluster.Emptiest(n, s)
}

// HAMiBinpack takes the node and the GPU with the greatest part in use; CPU plays no part.
type HAMiBinpack struct{}

// Score implements Policy.
func (HAMiBinpack) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	all := max(1, int64(whole(n)))
	return (all - int64(n.Free()-s.Demand())) * 1_000_000 / all, cluster.Tightest(n, s)
}

// KAIGPUPack takes a GPU that is shared already, the fullest first, then the node with the fewest free GPUs. Requests
// without a GPU go where no GPU is, if they can.
type KAIGPUPack struct{}

// Score implements Policy.
func (KAIGPUPack) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	if s.GPUs == 0 {
		return -int64(len(n.GPUs))*tierStep - int64(min(n.CPU/1000, tierStep-1)), 0
	}
	gpu, score := cluster.Tightest(n, s), -int64(free(n))
	if s.GPUs == 1 && n.GPUs[gpu] < cluster.WholeGPU {
		score += tierStep + int64(cluster.WholeGPU-n.GPUs[gpu])*mostGPUs
	}
	return score, gpu
}

// leastAllocated is higher the more of the node's CPU and memory is left, each by its own whole.
func leastAllocated(n *cluster.Node, s cluster.Shape) int64 {
	cpu, memory := cluster.Total(n)
	score := int64(n.CPU-s.CPU) * 1000 / max(1, int64(cpu))
	if memory > 0 {
		// In thousandths, from MiB, so that no product leaves an int64.
		score += int64(n.Memory>>20) * 1000 / max(1, int64(memory>>20))
	}
	return score
}

// mostGPUs is how many GPUs a node is taken to have at most.
const mostGPUs = 16

// free is how many GPUs of the node are wholly free.
func free(n *cluster.Node) int {
	count := 0
	for _, left := range n.GPUs {
		if left >= cluster.WholeGPU {
			count++
		}
	}
	return count
}
