// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/packing"
)

// Impossible reports that no packing has room for all the requests together, each as often as its number says. False
// says that there may be one.
func (r *Capacity) Impossible(requests map[cluster.Request]int) bool {
	items, some := r.items(requests)
	if !some {
		return true
	}
	if len(items) == 0 || len(r.kinds) == 0 {
		return len(items) > 0
	}
	s := newSearch(r, items)
	return s.proves(packing.Maximize(s.limits(), s.column))
}

// The limits of a kind: GPUs, and CPU and memory in parts of a node. The items' come after those of all kinds.
const (
	ofGPUs = iota
	ofCPU
	ofMemory
	perKind
)

// search packs as much as possible in fractions. A column is a GPU of some kind with its shares, or a request without
// a GPU.
type search struct {
	*Capacity
	list []item
	// target is the size of all that is wanted, together.
	target float64
	fill   knapsack
	// worth and best are, for each share, the value of its best variant, and which that is.
	worth []float64
	best  []int
}

func newSearch(r *Capacity, items []item) *search {
	s := &search{Capacity: r, list: items, fill: newKnapsack(items)}
	for _, it := range items {
		s.target += it.size * float64(it.wanted)
	}
	s.worth, s.best = make([]float64, len(s.fill.shares)), make([]int, len(s.fill.shares))
	return s
}

func (s *search) limits() []float64 {
	limits := make([]float64, 0, len(s.kinds)*perKind+len(s.list))
	for _, k := range s.kinds {
		limits = append(limits, float64(k.nodes*k.gpus), float64(k.nodes), float64(k.nodes))
	}
	for _, it := range s.list {
		limits = append(limits, float64(it.wanted))
	}
	return limits
}

// near is the difference that counts as equal, small compared with the sizes of requests.
const near = 1e-7

// column is what packing.Maximize asks for.
func (s *search) column(prices, takes []float64, placed float64) float64 {
	if placed > s.target-near {
		return -1
	}
	gain, at, alone := near, -1, -1
	most := 0.0 // no packing places more
	for i, it := range s.list {
		most += max(0, prices[s.row(i)]) * float64(it.wanted)
	}
	for k := range s.kinds {
		row := k * perKind
		single, what := s.offer(k, prices)
		filled := s.fill.fill(s.worth)
		if more := filled - prices[row+ofGPUs]; more > gain {
			gain, at, alone = more, k, -1
		}
		if single > gain {
			gain, at, alone = single, k, what
		}
		kind := s.kinds[k]
		most += max(filled, 0)*float64(kind.nodes*kind.gpus) + max(0, prices[row+ofCPU])*float64(kind.nodes) +
			max(0, prices[row+ofMemory])*float64(kind.nodes)
		if single > near {
			most = s.target // it could be placed at these prices as often as one likes, so they prove nothing
		}
	}
	if at < 0 || most < s.target*(1-near) {
		return -1
	}
	if alone >= 0 {
		s.take(takes, at, alone, 1)
		return s.list[alone].size
	}
	takes[at*perKind+ofGPUs] = 1
	s.offer(at, prices)
	s.fill.fill(s.worth)
	places := 0.0
	s.fill.each(func(share int) {
		s.take(takes, at, s.best[share], 1)
		places += s.list[s.best[share]].size
	})
	return places
}

func (s *search) row(item int) int { return len(s.kinds)*perKind + item }

// take adds units of an item on a node of the kind.
func (s *search) take(takes []float64, k, i int, units float64) {
	cpu, memory := s.parts(k, i)
	takes[k*perKind+ofCPU] += units * cpu
	takes[k*perKind+ofMemory] += units * memory
	takes[s.row(i)] += units
}

// parts are what a unit takes of the CPU and the memory of one node of the kind.
func (s *search) parts(k, i int) (cpu, memory float64) {
	it := &s.list[i]
	if it.cpu > 0 {
		cpu = float64(it.cpu) / float64(it.units) / float64(s.kinds[k].cpu)
	}
	if it.memory > 0 {
		memory = float64(it.memory) / float64(it.units) / float64(s.kinds[k].memory)
	}
	return cpu, memory
}

// offer finds the best unit of each share on the kind, beyond the price of its CPU and memory. It also finds the best
// request without a GPU.
func (s *search) offer(k int, prices []float64) (single float64, what int) {
	clear(s.worth)
	for i := range s.list {
		it := &s.list[i]
		share := it.share[k]
		if share == barred {
			continue
		}
		cpu, memory := s.parts(k, i)
		worth := it.size - prices[s.row(i)] - cpu*prices[k*perKind+ofCPU] - memory*prices[k*perKind+ofMemory]
		if share == 0 {
			if worth > single {
				single, what = worth, i
			}
			continue
		}
		if at := s.fill.at[share]; worth > s.worth[at] {
			s.worth[at], s.best[at] = worth, i
		}
	}
	return single, what
}
