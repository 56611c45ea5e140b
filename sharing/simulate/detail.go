// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import "github.com/kerf-gpu/kerf/sharing/allocator/cluster"

// Sample is a run at one moment. The n-th samples of two runs of one kind are of the same moment.
type Sample struct {
	// At is the percent of the capacity that had arrived; with departures the mean life times since counting began.
	At float64
	// Allocated is in percent of the capacity, and Fragmentation of the idle GPU.
	Allocated, Fragmentation float64
	// Refused is how many percent of the pods of a class were refused so far; a class without pods is missing.
	Refused map[string]float64
}

// The steps from sample to sample.
const (
	fillStep  = 1
	churnStep = 0.05
)

// sample keeps the moment, as often as steps were passed.
func (t *trial) sample(at, step float64) {
	if !t.detail {
		return
	}
	for float64(len(t.result.Samples))*step <= at {
		s := Sample{
			At: float64(len(t.result.Samples)) * step, Refused: map[string]float64{},
			Allocated: t.percent(t.allocated), Fragmentation: t.fragmentation(),
		}
		for class, arrived := range t.result.Arrived {
			s.Refused[class] = 100 * float64(t.result.Rejects[class]) / float64(arrived)
		}
		t.result.Samples = append(t.result.Samples, s)
	}
}

// Sketch is the GPUs of a node at the end of a run.
type Sketch struct {
	Name, Model string
	GPUs        []Hole
}

// Hole is what one GPU has left, in thousandths of it.
type Hole struct {
	Free cluster.Milli
	// Lost is the part of it that a typical pod cannot use, on average.
	Lost cluster.Milli
}

func (t *trial) sketch() {
	for i := range t.cluster.Len() {
		n := t.cluster.Node(i)
		k := Sketch{Name: n.Name, Model: n.Model}
		for g, lost := range t.usual.Lost(n) {
			k.GPUs = append(k.GPUs, Hole{n.GPUs[g], lost})
		}
		t.result.Nodes = append(t.result.Nodes, k)
	}
}
