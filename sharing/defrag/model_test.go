// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag_test

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing/defrag"
)

// ask is a request for so much of each of so many GPUs.
type ask struct{ gpus, share int }

// model is a Cluster of GPUs with 1,000 parts each. It chooses the fullest GPUs.
type model struct {
	asks []ask
	free [][]int
	held [][]bool
	// work is what Work returns from the start on.
	work int64
}

func newModel(nodes, gpus int) *model {
	m := &model{}
	for range nodes {
		free := make([]int, gpus)
		for g := range free {
			free[g] = 1000
		}
		m.free, m.held = append(m.free, free), append(m.held, make([]bool, gpus))
	}
	return m
}

func (m *model) Nodes() int { return len(m.free) }

func (m *model) Places(pod, node int, all bool) []defrag.Place {
	a := m.asks[pod]
	var fit []int
	for g, free := range m.free[node] {
		if free >= a.share && !m.held[node][g] {
			fit = append(fit, g)
		}
	}
	slices.SortStableFunc(fit, func(x, y int) int { return m.free[node][x] - m.free[node][y] })
	var out []defrag.Place
	var pick func(from int, chosen []int)
	pick = func(from int, chosen []int) {
		if len(chosen) == a.gpus {
			gpus := slices.Clone(chosen)
			slices.Sort(gpus)
			out = append(out, defrag.Place{Node: node, GPUs: gpus})
			return
		}
		for i := from; i < len(fit) && (all || len(out) == 0); i++ {
			pick(i+1, append(chosen, fit[i]))
		}
	}
	pick(0, nil)
	return out
}

func (m *model) Open(pod int, p defrag.Place) bool {
	return !slices.ContainsFunc(p.GPUs, func(g int) bool {
		return m.free[p.Node][g] < m.asks[pod].share || m.held[p.Node][g]
	})
}

func (m *model) Best(pod int) (defrag.Place, bool) {
	var best defrag.Place
	least, found := 0, false
	for node := range m.free {
		for _, p := range m.Places(pod, node, false) {
			left := 0
			for _, g := range p.GPUs {
				left += m.free[node][g]
			}
			if !found || left < least {
				best, least, found = p, left, true
			}
		}
	}
	return best, found
}

func (m *model) Take(pod int, p defrag.Place) { m.change(pod, p, -1) }

func (m *model) Release(pod int, p defrag.Place) { m.change(pod, p, 1) }

func (m *model) change(pod int, p defrag.Place, sign int) {
	for _, g := range p.GPUs {
		m.free[p.Node][g] += sign * m.asks[pod].share
		if free := m.free[p.Node][g]; free < 0 || free > 1000 {
			panic("a GPU is granted twice or released twice")
		}
	}
}

func (m *model) Work() int64 { return m.work }

func (m *model) Withhold(node int, gpus []int, withheld bool) {
	for _, g := range gpus {
		m.held[node][g] = withheld
	}
}
