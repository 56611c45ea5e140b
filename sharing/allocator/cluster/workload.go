// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/packing"
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

// typicalPercent of all requests are in the typical classes. Rarer ones say little about fragmentation.
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
			cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Models, b.Models), cmp.Compare(a.Profile, b.Profile),
			cmp.Compare(a.GPUMemory, b.GPUMemory), cmp.Compare(a.Level, b.Level))
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

// Fragmentation is the free GPU of the node that a typical request cannot use, in thousandths, times Weight.
func (w *Workload) Fragmentation(n *Node) int64 {
	return w.FragmentationIf(n, n.CPU, n.GPUs)
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

// Weight is the divisor of Fragmentation; at least 1.
func (w *Workload) Weight() int64 { return max(1, w.weight) }

// FragmentationIf are those of the node if it had this much left.
func (w *Workload) FragmentationIf(n *Node, cpu Milli, gpus []Milli) int64 {
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

// cell is the step of sizes in holes, and cells how many a GPU has.
const (
	cell  = 10
	cells = int(WholeGPU / cell)
)

// holes says what a hole of each size is worth, in thousandths of a GPU. That is the best filling by the usual shares,
// each at its price when all of them are packed into the fewest GPUs. A placement that belongs to such a packing loses
// nothing.
type holes struct {
	sizes  [cells + 1]int64
	values [cells + 1]int64
}

func newHoles(classes []Class) holes {
	demand := map[int]float64{cells: 1}
	for _, c := range classes {
		if c.GPUs == 1 && c.Share > 0 && c.Share <= WholeGPU {
			demand[cellsOf(c.Share)] += float64(c.Count)
		}
	}
	items := make([]int, 0, len(demand))
	for size := range demand {
		items = append(items, size)
	}
	slices.Sort(items)
	wanted := make([]float64, len(items))
	for i, size := range items {
		wanted[i] = demand[size]
	}
	prices := packingPrices(items, wanted)
	h := holes{}
	for i, size := range items {
		h.sizes[size] = int64(math.Round(prices[i] * 1000))
	}
	for c := 1; c <= cells; c++ {
		h.values[c] = h.values[c-1]
		for _, size := range items {
			if size <= c {
				h.values[c] = max(h.values[c], h.values[c-size]+h.sizes[size])
			}
		}
	}
	return h
}

// cellsOf rounds up: a share must fit where it is thought to.
func cellsOf(share Milli) int { return int((share + cell - 1) / cell) }

func (h *holes) value(left Milli) int64 { return h.values[left/cell] }
func (h *holes) size(share Milli) int64 { return h.sizes[cellsOf(share)] }

// packingPrices are the prices of the sizes (in cells) when the wanted number of each is packed into the fewest GPUs.
func packingPrices(sizes []int, wanted []float64) []float64 {
	alone := make([]int, len(sizes))
	for i, size := range sizes {
		alone[i] = cells / size
	}
	return packing.Prices(wanted, alone, func(prices []float64) ([]float64, float64) { return fullest(sizes, prices) })
}

// fullest is the filling of a GPU that is worth most at the prices: a knapsack.
func fullest(sizes []int, prices []float64) ([]float64, float64) {
	var worth [cells + 1]float64
	var last [cells + 1]int
	for c := 1; c <= cells; c++ {
		worth[c], last[c] = worth[c-1], -1
		for j, size := range sizes {
			if size <= c && worth[c-size]+prices[j] > worth[c]+packing.Tiny {
				worth[c], last[c] = worth[c-size]+prices[j], j
			}
		}
	}
	filling := make([]float64, len(sizes))
	for c := cells; c > 0; {
		if j := last[c]; j >= 0 {
			filling[j]++
			c -= sizes[j]
		} else {
			c--
		}
	}
	return filling, worth[cells]
}

const (
	// mixes is how many mixes are looked at, a power of 2.
	mixes = 32
	// spread is how far the number of shares of a size strays from its mean, in roots of that mean. Independent
	// arrivals and lives would give 1.
	spread = 2
)

// variedHoles are the mean of what holes are worth in mixes around the usual one. If requests leave again, each moment
// has more of one size and fewer of another than usual. A hole that fits into many packings is then worth more than one
// that only the usual packing uses. A placement that is best in all of the mixes loses nothing. Expected is how many of
// a class are there at once, in thousandths.
func variedHoles(classes []Class, expected func(Class) int64) holes {
	there := map[int]float64{}
	for _, c := range classes {
		there[cellsOf(c.Share)] += float64(expected(c)) / 1000
	}
	var sizes []int
	for size := range there {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	mix := slices.Clone(classes)
	sum := holes{}
	for number := range uint(mixes) {
		for i, c := range classes {
			size := cellsOf(c.Share)
			at, _ := slices.BinarySearch(sizes, size)
			stray := spread / math.Sqrt(max(there[size], 1))
			if more(number, at) {
				stray = -stray
			}
			mix[i].Count = int64(float64(expected(c)) * max(0, 1-stray))
		}
		h := newHoles(mix)
		for c := range sum.values {
			sum.sizes[c] += h.sizes[c]
			sum.values[c] += h.values[c]
		}
	}
	for c := range sum.values {
		sum.sizes[c] = (sum.sizes[c] + mixes/2) / mixes
		sum.values[c] = (sum.values[c] + mixes/2) / mixes
	}
	return sum
}

// more says whether the mix of that number has more of a size than usual, or less. Each size has more in half of the
// mixes. Any two of up to mixes-1 sizes agree in half of them (Walsh functions).
func more(mix uint, size int) bool {
	column := uint(size)%(mixes-1) + 1
	return bits.OnesCount(mix&column)%2 == 1
}
