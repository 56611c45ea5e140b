// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// family is what the GPUs of some models can be cut into, as NVIDIA documents it. An agent asks the driver; a simulation
// of GPUs that are not in MIG mode, or that nobody has, has nobody to ask.
type family struct {
	models []string      // globs
	slices int           // of compute
	units  sharing.Bytes // of the axis of placements
	rows   []row
}

// row is one profile. Its name is made of the compute slices and the GPU's memory, as drivers name it.
type row struct {
	compute, size int
	starts        []int
}

// families are looked through in their order; the last is for every other model.
func families() []family {
	return []family{
		{[]string{"A30", "*A30 *", "*A30"}, 4, 4, []row{{1, 1, []int{0, 1, 2, 3}}, {2, 2, []int{0, 2}}, {4, 4, []int{0}}}},
		{[]string{"*RTX*PRO*6000*", "*RTX*PRO*5000*"}, 4, 12, []row{{1, 3, []int{0, 3, 6, 9}}, {2, 6, []int{0, 6}}, {4, 12, []int{0}}}},
		{nil, 7, 8, []row{
			{1, 1, []int{0, 1, 2, 3, 4, 5, 6}}, {1, 2, []int{0, 2, 4, 6}}, {2, 2, []int{0, 2, 4}}, {3, 4, []int{0, 4}}, {4, 4, []int{0}}, {7, 8, []int{0}},
		}},
	}
}

// unknownMemory is taken for the memory of a GPU where it is not known.
const unknownMemory = 80 * sharing.GiB

// MIG puts the GPUs of the nodes that are chosen into MIG mode. Each instance has its part of the GPU's memory, which is a
// little more than a driver reports.
func MIG(nodes []cluster.Node, chosen func(name string) bool) error {
	type kind struct {
		model  string
		memory sharing.Bytes
	}
	tables := map[kind]*mig.Table{}
	for i := range nodes {
		n := &nodes[i]
		if n.Table != nil || len(n.GPUs) == 0 || !chosen(n.Name) {
			continue
		}
		k := kind{n.Model, n.GPUMemory}
		if tables[k] == nil {
			t, err := tableOf(n.Model, n.GPUMemory)
			if err != nil {
				return fmt.Errorf("cut GPUs of node %s: %w", n.Name, err)
			}
			tables[k] = t
		}
		n.Table = tables[k]
	}
	return nil
}

func tableOf(model string, memory sharing.Bytes) (*mig.Table, error) {
	if memory == 0 {
		memory = unknownMemory
	}
	all := families()
	f := all[len(all)-1]
	for _, g := range all[:len(all)-1] {
		if model != "" && sharing.MatchModels(g.models, model) {
			f = g
			break
		}
	}
	var profiles []mig.Profile
	for id, r := range f.rows {
		part := memory / f.units * sharing.Bytes(r.size) //nolint:gosec // a small number of the rows above
		// Drivers name an instance by its part of the GPU's memory, which they round up to GiB before.
		gib := math.Ceil(float64(memory)/float64(sharing.GiB)) * float64(r.size) / float64(f.units)
		name := fmt.Sprintf("%dg.%dgb", r.compute, int(math.Round(gib)))
		profiles = append(profiles, mig.Profile{
			ID: id, Name: name, Compute: r.compute, Memory: part, Most: min(len(r.starts), f.slices/r.compute), Size: r.size, Starts: r.starts,
		})
	}
	return mig.NewTable(profiles)
}

// migPart is what an instance of the profile counts for, in thousandths of a GPU: on the first node that has it, else its
// part of seven slices.
func migPart(profile string, nodes []cluster.Node) cluster.Milli {
	for i := range nodes {
		if nodes[i].Table == nil {
			continue
		}
		if p, err := nodes[i].Table.Lookup("mig", profile); err == nil {
			return cluster.Milli(p.Size) * cluster.WholeGPU / cluster.Milli(nodes[i].Table.Axis())
		}
	}
	w, err := mig.ParseWish("mig", profile)
	if err != nil || w.Compute == 0 {
		return 0
	}
	return min(cluster.WholeGPU, cluster.Milli(w.Compute)*cluster.WholeGPU/7)
}
