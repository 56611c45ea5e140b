// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Points are the loads, in percent of the capacity arrived, at which a run is measured.
func Points() []int { return []int{90, 95, 100, 110, 120, 130} }

// Classes are the classes by which pods are counted: cpu-only, share, and the number of whole GPUs.
func Classes() []string { return []string{"cpu-only", "share", "1", "2", "4", "8"} }

// Result is one run, as it is printed in JSON.
type Result struct {
	Policy string `json:"policy"`
	Trace  string `json:"trace"`
	Seed   int64  `json:"seed"`
	// CapacityMilli and ArrivedMilli are thousandths of a GPU.
	CapacityMilli int64 `json:"capacityGPUMilli"`
	ArrivedMilli  int64 `json:"arrivedGPUMilli"`
	// AllocatedPercent is of the capacity, by arrived percent; points that no load reached are missing.
	AllocatedPercent map[string]float64 `json:"allocatedPercent"`
	// FragmentationPercent is of the idle GPU, by arrived percent.
	FragmentationPercent map[string]float64 `json:"fragmentationPercent"`
	// FirstFailurePercent is what had arrived when a pod was first refused; 0 when none was.
	FirstFailurePercent float64 `json:"firstFailurePercent"`
	// Load is what --churn asked for: the GPU time that arrivals want, in parts of the capacity; 0 when nothing leaves.
	Load float64 `json:"load,omitempty"`
	// MeanAllocatedPercent is over the time measured, of the capacity; 0 when nothing leaves.
	MeanAllocatedPercent float64 `json:"meanAllocatedPercent,omitempty"`
	// RejectedPodsPercent is of the pods that arrived, RejectedDemandPercent of the GPU they asked for.
	RejectedPodsPercent   float64 `json:"rejectedPodsPercent"`
	RejectedDemandPercent float64 `json:"rejectedDemandPercent"`
	// PooledRejectedPercent is RejectedDemandPercent as it would be if the usable part of all GPUs were one pool: what
	// is refused for the load alone. 0 where no pool was asked for.
	PooledRejectedPercent float64 `json:"pooledRejectedPercent,omitempty"`
	// NoPacking is the part of what was refused for which no packing had room; nil where it was not asked for.
	NoPacking *NoPacking `json:"noPacking,omitempty"`
	// Moved is what was moved for pods that did not fit; nil where nothing may be.
	Moved *Moved `json:"moved,omitempty"`
	// Arrived counts the pods by class, as Rejects does.
	Arrived map[string]int `json:"arrived"`
	// Rejects counts refused pods by class: cpu-only, share, and the number of GPUs.
	Rejects map[string]int `json:"rejects"`
	// Decisions counts decisions per second.
	Decisions float64 `json:"decisionsPerSecond"`
	Kept      `json:"-"`
}

// Kept is what a result has for those who draw and print it.
type Kept struct {
	// Samples and Nodes are there where the experiment asks for detail: the run as it went, and the nodes at its end.
	Samples []Sample
	Nodes   []Sketch
	// Pooled says that a pool was asked for.
	Pooled bool
}

// NoPacking is what was refused while no packing of the present pods had capacity for the refused one too. No policy
// that accepted the same pods could have placed it. It is a lower bound: other refused pods may have had no capacity
// either.
type NoPacking struct {
	// Percent is of the GPU that arrived, as RejectedDemandPercent is.
	Percent float64 `json:"rejectedDemandPercent"`
	// Rejects counts the pods by class.
	Rejects map[string]int `json:"rejects"`
}

// Rejected is the number of refused pods of all classes.
func (r *Result) Rejected() int {
	sum := 0
	for _, n := range r.Rejects {
		sum += n
	}
	return sum
}

func classOf(p *Pod) string {
	switch {
	case p.GPUs == 0:
		return "cpu-only"
	case p.each() < cluster.WholeGPU:
		return "share"
	}
	return strconv.Itoa(p.GPUs)
}

// Percent is a part of a whole in percent, to two decimals; of none it is that of 1.
func Percent(part, whole cluster.Milli) float64 {
	return round(100 * float64(part) / float64(max(1, whole)))
}

func round(v float64) float64 { return math.Round(v*100) / 100 }

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
