// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

// Cut says what the GPUs of a node in MIG mode are cut into, one for each, and sets GPUs to what that leaves. It is for
// those who keep books of their own and ask a Policy: nodes of a Cluster are empty when they come. Copies of the node share
// what is computed of its Table.
func (n *Node) Cut(have []mig.Occupancy) {
	c := n.cuts()
	n.instances, n.GPUs = slices.Clone(have), make([]Milli, len(have))
	for g, o := range have {
		n.GPUs[g] = (Milli(n.Table.Free(o).Count())*WholeGPU + Milli(c.table.Axis()) - 1) / Milli(c.table.Axis())
	}
}

// Instance is the profile that answers a shape on a node in MIG mode; false when there is none.
func (n *Node) Instance(s Shape) (mig.Profile, bool) { return n.instance(s) }

// Resolve is the shape as the node books it, which is what a Policy scores.
func (n *Node) Resolve(s Shape) Shape { return n.resolve(s) }

// Usual is where an instance of the profile takes least from the GPU if all profiles are asked for alike, and how much that
// is; -1 where there is no place.
func (n *Node) Usual(gpu int, p mig.Profile) (int, mig.Value) { return n.best(gpu, p, n.usual()) }
