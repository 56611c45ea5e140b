// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate fills a cluster with arriving pods and measures how well a policy places them.
//
// It promises that equal nodes, pods, seeds and policy give an equal result, the speed apart. A pod that does not
// fit is dropped for good. It opens no file and needs no GPU.
package simulate

import "github.com/kerf-gpu/kerf/sharing/allocator/cluster"

// Pod is a request that has a name.
type Pod struct {
	Name string
	// Type is what pods of one kind share; empty where the list tells none.
	Type string
	// Life is the mean time that it runs, compared with the others; 0 counts as 1.
	Life float64
	// Varies is how that time varies.
	Varies Variation
	// Part is what a pod that asks by GPU memory counts for on each GPU; Size sets it.
	Part cluster.Milli
	cluster.Request
}

// Demand is what the pod counts for, on all GPUs together.
func (p *Pod) Demand() cluster.Milli { return cluster.Milli(p.GPUs) * p.each() }

func (p *Pod) each() cluster.Milli { return max(p.Part, p.Share) }

func (p *Pod) life() float64 {
	if p.Life > 0 {
		return p.Life
	}
	return 1
}

// Most is the largest amount that is believed; products of two stay within an int64.
const Most = 1 << 30

// MostGPUs is how many GPUs one node or one pod may have.
const MostGPUs = 64
