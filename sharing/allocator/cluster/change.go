// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
)

// Cordon says whether a node takes new requests. What it holds stays.
func (c *Cluster) Cordon(node int, cordoned bool) error {
	if node < 0 || node >= len(c.nodes) {
		return fmt.Errorf("cordon node %d: there are %d", node, len(c.nodes))
	}
	c.nodes[node].Cordoned = cordoned
	c.changed(node)
	return nil
}

// Withhold says whether a GPU takes new requests: not while it is sick, or cut into MIG instances. What it holds stays,
// and what is released on it is free again when it comes back.
func (c *Cluster) Withhold(node, gpu int, withheld bool) error {
	if node < 0 || node >= len(c.nodes) || gpu < 0 || gpu >= len(c.nodes[node].GPUs) {
		return fmt.Errorf("withhold GPU %d of node %d: no such GPU", gpu, node)
	}
	n := c.nodes[node]
	if n.aside == nil {
		n.aside = make([]Milli, len(n.GPUs))
		for g := range n.aside {
			n.aside[g] = inUse
		}
	}
	if withheld == (n.aside[gpu] != inUse) {
		return nil
	}
	if withheld {
		n.aside[gpu], n.GPUs[gpu] = n.GPUs[gpu], 0
	} else {
		n.GPUs[gpu], n.aside[gpu] = n.aside[gpu], inUse
	}
	c.changed(node)
	return nil
}

// inUse stands in aside for a GPU that is not withheld.
const inUse Milli = -1

// Add adds an empty node, the last in the order that decides ties, and gives its index.
func (c *Cluster) Add(n Node) int {
	n.GPUs, n.Topology, n.aside, n.kinds = slices.Clone(n.GPUs), slices.Clone(n.Topology), nil, [kinds]int{}
	n.now, n.geometry = worth{}, c.cuts[n.Table]
	n.empty()
	if n.Table != nil {
		c.cuts[n.Table] = n.cuts()
		c.cuttable, c.unsure = c.cuttable+len(n.GPUs), true
	}
	n.version, n.id = 1, mix(uint64(len(c.nodes)))
	n.cpu, n.memory = n.CPU, n.Memory
	c.nodes = append(c.nodes, &n)
	for _, r := range c.rankings {
		r.scores, r.stale = append(r.scores, scored{}), true // which makes the log void too
	}
	// Up to an eighth of the nodes or so are cheaper scored one by one than all looked at.
	if size := max(16, len(c.nodes)/8); size > len(c.log) {
		c.log = make([]int32, 2*size)
	}
	return len(c.nodes) - 1
}
