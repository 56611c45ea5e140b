// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"math"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// FirstFit is kube-scheduler with its default plugins and `parallelism: 1`. It looks for as many nodes as the default
// of percentageOfNodesToScore says, from where it stopped for the pod before. It takes the one with the best sum of
// NodeResourcesFit and NodeResourcesBalancedAllocation. The other plugins give equal points to nodes without taints,
// and to pods without affinity and services.
type FirstFit struct {
	devices *allocator
	// next is the first node to look at.
	next   int
	random uint64
}

// Choose implements cluster.Chooser. An error of the allocator gives a placement that Cluster.Take rejects.
func (f *FirstFit) Choose(nodes []*cluster.Node, r cluster.Request) (cluster.Placement, bool) {
	f.random = mix(f.random)
	best, ok := cluster.Placement{}, false
	found, looked, score, tie := 0, 0, int64(0), uint64(0)
	for i := range nodes {
		at := (f.next + i) % len(nodes)
		gpus, fits, err := f.filter(nodes[at], r)
		if err != nil {
			return cluster.Placement{Node: at}, true
		}
		if fits {
			if found == toFind(len(nodes)) {
				break
			}
			found++
			mine, drawn := points(nodes[at], r), mix(f.random^cluster.ID(nodes[at]))
			if !ok || mine > score || mine == score && drawn > tie {
				best, ok, score, tie = cluster.Placement{Node: at, GPUs: gpus}, true, mine, drawn
			}
		}
		looked++
	}
	if len(nodes) > 0 {
		f.next = (f.next + looked) % len(nodes)
	}
	return best, ok
}

// filter reports whether the node has everything that is requested, and which GPUs.
func (f *FirstFit) filter(n *cluster.Node, r cluster.Request) ([]int, bool, error) {
	// For GPUs alone, this is what the selectors of a claim check.
	if why := cluster.Evaluate(n, r); why != cluster.Fits && why != cluster.LacksCapacity {
		return nil, false, nil
	}
	if r.GPUs == 0 {
		return nil, true, nil
	}
	gpus, err := f.devices.gpus(n, n.Resolve(r.Shape))
	return gpus, len(gpus) > 0, err
}

// Score implements cluster.Policy, for those who ask about one node.
func (f *FirstFit) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	gpu := 0
	if s.GPUs == 1 {
		gpus, err := f.devices.gpus(n, s)
		if err != nil || len(gpus) == 0 {
			return 0, -1
		}
		gpu = gpus[0]
	}
	return points(n, cluster.Request{Shape: s}), gpu
}

// toFind is how many nodes kube-scheduler looks for in a cluster of so many.
func toFind(nodes int) int {
	const always = 100
	if nodes < always {
		return nodes
	}
	return max(always, nodes*max(5, 50-nodes/125)/100)
}

// points are those of NodeResourcesFit and NodeResourcesBalancedAllocation for CPU and memory.
func points(n *cluster.Node, r cluster.Request) int64 {
	cpu, memory := cluster.Total(n)
	var before, after, all []int64
	for _, one := range [][3]int64{{int64(cpu), int64(n.CPU), int64(r.CPU)},
		{int64(memory), int64(n.Memory), int64(r.Memory)}} { //nolint:gosec // no node has 8 EiB
		if one[0] > 0 {
			all = append(all, one[0])
			before, after = append(before, one[0]-one[1]), append(after, one[0]-one[1]+one[2])
		}
	}
	return leastAllocated(after, all) + 50 + (50+balance(after, all)-balance(before, all))/2
}

// leastAllocated is the mean of what is free of each resource, in percent.
func leastAllocated(used, all []int64) int64 {
	sum := int64(0)
	for i := range all {
		if used[i] <= all[i] {
			sum += (all[i] - used[i]) * 100 / all[i]
		}
	}
	return sum / max(1, int64(len(all)))
}

// balance is 100 if equal parts of CPU and memory are used.
func balance(used, all []int64) int64 {
	deviation := 0.0
	if len(all) == 2 {
		a, b := float64(used[0])/float64(all[0]), float64(used[1])/float64(all[1])
		deviation = math.Abs((min(a, 1) - min(b, 1)) / 2)
	}
	return int64((1 - deviation) * 100)
}

// mix is splitmix64: a number without pattern for each number.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
