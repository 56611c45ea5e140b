// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Class is a shape and how often it was seen.
type Class struct {
	Shape
	Count int64
}

// Workload is what usually arrives, most frequent first.
type Workload struct {
	all     []Class
	typical []Class
	// weight and seen are the counts of typical and of all together.
	weight, seen int64
}

// typicalPercent of all requests are covered by the typical classes; what is rarer says little of fragments.
const typicalPercent = 95

// NewWorkload counts the shapes of the requests.
func NewWorkload(requests []Request) Workload {
	counts := map[Shape]int64{}
	for _, r := range requests {
		counts[r.Shape]++
	}
	return workloadOf(counts)
}

func workloadOf(counts map[Shape]int64) Workload {
	w := Workload{}
	for s, n := range counts {
		w.all = append(w.all, Class{s, n})
		w.seen += n
	}
	slices.SortFunc(w.all, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Share, b.Share),
			cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Models, b.Models), cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.GPUMemory, b.GPUMemory), cmp.Compare(a.Level, b.Level))
	})
	for _, class := range w.all {
		if w.weight*100 >= w.seen*typicalPercent {
			break
		}
		w.typical = append(w.typical, class)
		w.weight += class.Count
	}
	return w
}

// Fragments is the free GPU of the node that a typical request cannot use, in thousandths, times Weight.
func (w *Workload) Fragments(n *Node) int64 {
	return w.FragmentsIf(n, n.CPU, n.GPUs)
}

// Lost is what a typical request cannot use of the free part of each GPU of the node, on average.
func (w *Workload) Lost(n *Node) []Milli {
	lost := make([]Milli, len(n.GPUs))
	for i := range w.typical {
		m := &w.typical[i]
		share := n.share(m.Shape)
		usable := m.GPUs > 0 && n.CPU >= m.CPU && allows(m.Models, n.Model) && count(n.GPUs, share) >= m.GPUs
		for g, left := range n.GPUs {
			if !usable || left < share {
				lost[g] += Milli(m.Count) * left
			}
		}
	}
	for g := range lost {
		lost[g] /= Milli(w.Weight())
	}
	return lost
}

// Weight is the divisor of Fragments; at least 1.
func (w *Workload) Weight() int64 { return max(1, w.weight) }

// FragmentsIf are those of the node if it had this much left.
func (w *Workload) FragmentsIf(n *Node, cpu Milli, gpus []Milli) int64 {
	var room [maxGPUs]Milli
	some, free := room[:0], Milli(0)
	for _, left := range gpus {
		if left > 0 {
			some = append(some, left)
			free += left
		}
	}
	sum := int64(0)
	if free == 0 {
		return 0
	}
	for i := range w.typical {
		m := &w.typical[i]
		lost := free
		if m.GPUs > 0 && cpu >= m.CPU && allows(m.Models, n.Model) {
			fit, small, share := 0, Milli(0), m.Share
			if m.GPUMemory > 0 || m.Profile != "" || n.Table != nil || n.Overcommit != (sharing.Overcommit{}) {
				share = n.share(m.Shape)
			}
			for _, left := range some {
				if left >= share {
					fit++
				} else {
					small += left
				}
			}
			if fit >= m.GPUs {
				lost = small
			}
		}
		sum += m.Count * int64(lost)
	}
	return sum
}

// forecast is how many requests of the class arrive while a capacity is asked for once, in thousandths.
func (w *Workload) forecast(class Class, capacity Milli) int64 {
	demand := int64(0)
	for _, m := range w.all {
		demand += m.Count * int64(m.Demand())
	}
	return class.Count * int64(capacity) * 1000 / max(1, demand)
}
