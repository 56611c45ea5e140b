// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand" //nolint:depguard // its sequence is that of the published experiment
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Draw makes the list of pods by lot.
type Draw struct {
	// Pods is how many are drawn; each is of a type as often as the type's count is a part of all counts.
	Pods int   `yaml:"pods"`
	Seed int64 `yaml:"seed"`
}

// varySteps is how many sizes a type that varies has. They are few, since clusters see few.
const varySteps = 5

// draw makes pods from one of each type. Equal input gives equal pods.
func (s *Scenario) draw(types []Pod) []Pod {
	//nolint:gosec // nothing secret is drawn
	r := rand.New(rand.NewSource(s.Draw.Seed))
	all := 0
	for _, t := range s.Pods {
		all += max(1, t.Count)
	}
	var pods []Pod
	for k := range s.Draw.Pods {
		at, i := r.Intn(all), 0
		for at >= max(1, s.Pods[i].Count) {
			at -= max(1, s.Pods[i].Count)
			i++
		}
		// The step is drawn for types that do not vary too, so that a change of one type leaves the others.
		p, step := types[i], float64(2*r.Intn(varySteps))/(varySteps-1)-1
		p.Name = fmt.Sprintf("%s-%06d", p.Type, k)
		if by := s.Pods[i].Vary; by > 0 {
			p.vary(1 + by*step)
		}
		pods = append(pods, p)
	}
	return pods
}

// vary makes all amounts but the number of GPUs larger or smaller, to tenths of a core, whole percents and GiB. What
// is whole stays whole, and nothing becomes 0.
func (p *Pod) vary(times float64) {
	step := func(v, unit float64) float64 {
		if v == 0 {
			return 0
		}
		return max(1, math.Round(v*times/unit)) * unit
	}
	p.CPU = cluster.Milli(step(float64(p.CPU), 100))
	p.Memory = sharing.Bytes(step(float64(p.Memory), float64(sharing.GiB)))
	p.GPUMemory = sharing.Bytes(step(float64(p.GPUMemory), float64(sharing.GiB)))
	if p.Share < cluster.WholeGPU {
		p.Share = min(cluster.WholeGPU, cluster.Milli(step(float64(p.Share), 10)))
	}
}

// Inflate gives the pods in the order in which they arrive, shuffled by the seed. It draws pods again until they
// request times the capacity, or leaves some out if they request more. The sequence is that of the published FGD
// experiment, number by number.
func Inflate(pods []Pod, capacity cluster.Milli, times float64, seed int64) []Pod {
	//nolint:gosec // an experiment is repeated by its seed; nothing secret is drawn
	r := rand.New(rand.NewSource(seed))
	// The published experiment draws one number before it shuffles.
	r.Int()
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	out := slices.Clone(sorted)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	demand := cluster.Milli(0)
	for i := range out {
		demand += out[i].Demand()
	}
	target := cluster.Milli(float64(capacity) * times)
	if demand == 0 {
		return out
	}
	for demand > target {
		i := r.Intn(len(out))
		demand -= out[i].Demand()
		out = slices.Delete(out, i, i+1)
	}
	for {
		p := sorted[r.Intn(len(sorted))]
		if demand+p.each() > target {
			return out
		}
		out, demand = append(out, p), demand+p.Demand()
	}
}

// Order is the nodes in an order of their own for each seed, since ties are decided by it.
func Order(nodes []cluster.Node, seed int64) []cluster.Node {
	//nolint:gosec // as above
	perm := rand.New(rand.NewSource(seed ^ 0x6b657266)).Perm(len(nodes))
	out := make([]cluster.Node, len(nodes))
	for i, j := range perm {
		out[j] = nodes[i]
	}
	return out
}

// family is the MIG geometry of some models, as NVIDIA documents it. An agent asks the driver. A simulation has no
// driver for GPUs that are not in MIG mode, or that do not exist.
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
		{[]string{"A30", "*A30 *", "*A30"}, 4, 4, []row{{1, 1, []int{0, 1, 2, 3}}, {2, 2, []int{0, 2}},
			{4, 4, []int{0}}}},
		{[]string{"*RTX*PRO*6000*", "*RTX*PRO*5000*"}, 4, 12, []row{{1, 3, []int{0, 3, 6, 9}}, {2, 6, []int{0, 6}},
			{4, 12, []int{0}}}},
		{nil, 7, 8, []row{
			{1, 1, []int{0, 1, 2, 3, 4, 5, 6}}, {1, 2, []int{0, 2, 4, 6}}, {2, 2, []int{0, 2, 4}}, {3, 4, []int{0, 4}},
			{4, 4, []int{0}}, {7, 8, []int{0}},
		}},
	}
}

// unknownMemory is taken for the memory of a GPU where it is not known.
const unknownMemory = 80 * sharing.GiB

// MIG puts the GPUs of the nodes that are chosen into MIG mode. Each instance has its part of the GPU's memory, which
// is a little more than a driver reports.
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
				return fmt.Errorf("create MIG instances on node %s: %w", n.Name, err)
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
			ID: id, Name: name, Compute: r.compute, Memory: part, MaxInstances: min(len(r.starts), f.slices/r.compute),
			Size: r.size, Starts: r.starts,
		})
	}
	return mig.NewTable(profiles)
}

// migPart is what an instance of the profile counts for, in thousandths of a GPU. It is the value on the first node
// that has it, else its part of seven slices.
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
