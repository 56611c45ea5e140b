// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"
)

// Together is where a gang finds its places.
type Together struct {
	// Placements has one for each request, in their order.
	Placements []Placement
	// Level is the index of the domains that the gang stays within one of; len(domains) when it is spread over several.
	Level int
	// Domain is that domain; empty when it is spread.
	Domain string
}

// Gang places all requests or none, without taking anything. Each of domains has a name for each node, in their order,
// such as its NVLink clique, then its rack, then its leaf. No domain is "". Gang takes the first level where one domain
// fits the whole gang, and there the domain with the least free capacity. Without one, it spreads the gang over all
// nodes. Within a domain the policy chooses.
//
// Requests of one shape find their places if there are any, unless they request shares of several GPUs each. Of mixed
// ones the largest is placed first, and nothing is tried twice.
func (c *Cluster) Gang(requests []Request, domains ...[]string) (Together, bool) {
	for level, names := range domains {
		byName := map[string][]int{}
		for node := range c.nodes {
			if node < len(names) && names[node] != "" {
				byName[names[node]] = append(byName[names[node]], node)
			}
		}
		var order []domain
		for name, nodes := range byName {
			d := domain{name, nodes, 0}
			for _, i := range nodes {
				d.free += c.nodes[i].Free()
			}
			order = append(order, d)
		}
		slices.SortFunc(order, func(a, b domain) int {
			return cmp.Or(cmp.Compare(a.free, b.free),
				cmp.Compare(a.name, b.name))
		})
		for _, d := range order {
			if places, ok := c.all(requests, d.nodes); ok {
				return Together{places, level, d.name}, true
			}
		}
	}
	everywhere := make([]int, len(c.nodes))
	for i := range everywhere {
		everywhere[i] = i
	}
	places, ok := c.all(requests, everywhere)
	if !ok {
		return Together{}, false
	}
	return Together{Placements: places, Level: len(domains)}, true
}

type domain struct {
	name  string
	nodes []int
	free  Milli
}

// all places the requests on the nodes, and gives everything back.
func (c *Cluster) all(requests []Request, nodes []int) ([]Placement, bool) {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &requests[a], &requests[b]
		return cmp.Or(cmp.Compare(y.Demand(), x.Demand()), cmp.Compare(y.GPUMemory, x.GPUMemory),
			cmp.Compare(y.CPU, x.CPU), cmp.Compare(y.Memory, x.Memory))
	})
	places := make([]Placement, len(requests))
	for k, i := range order {
		p, ok := c.within(requests[i], nodes)
		if ok {
			c.move(requests[i], p, -1)
			places[i] = p
			continue
		}
		for _, done := range order[:k] {
			c.move(requests[done], places[done], 1)
		}
		return nil, false
	}
	for i := range requests {
		c.move(requests[i], places[i], 1)
	}
	return places, true
}

// within is Choose among some nodes, which are in ascending order.
func (c *Cluster) within(r Request, nodes []int) (Placement, bool) {
	ranks := c.ranked(r.Shape)
	best := -1
	for _, i := range nodes {
		k := &ranks.scores[i]
		if k.fits && (best < 0 || k.score > ranks.scores[best].score) && c.nodes[i].Memory >= r.Memory {
			best = i
		}
	}
	if best < 0 {
		return Placement{}, false
	}
	return c.on(best, ranks, r), true
}

// on is the placement on the node that won.
func (c *Cluster) on(node int, ranks *ranking, r Request) Placement {
	n := c.nodes[node]
	gpus := []int{int(ranks.scores[node].gpu)}
	if r.GPUs != 1 {
		gpus = n.chosen(n.resolve(r.Shape))
	}
	return Placement{node, gpus, starts(c.policy, n, r.Shape, gpus)}
}
