// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

// weights are how much the terms of Kerf's score count, and the step below which a difference is none.
type weights struct {
	strand, startHalves, priceHalves, step int64
}

const (
	weighHole = 5
	// leavingAfter is how many must have left before it is believed that they do.
	leavingAfter = 64
)

// weights are of two kinds. If requests leave again, a free start is used over and over, so it counts more. What only
// helps to fill the cluster to the last share counts less.
func (k *Kerf) weights() weights {
	if k.left == leavingAfter {
		return weights{strand: 2, startHalves: 16, priceHalves: 1, step: 40}
	}
	return weights{strand: 4, startHalves: 1, priceHalves: 2, step: 80}
}

// Kerf is the default policy. It starts with the growth of fragmentation, as FGD does. It adds four costs:
//   - what a share spoils of a GPU for the typical mix of shares;
//   - the GPU that is left without CPU;
//   - the lost places where a request for several GPUs could have started;
//   - the price of a scarce model.
//
// All terms are thousandths of a GPU.
type Kerf struct {
	workload Workload
	holes    holes
	// cpu is the thousandths of a core that go with one GPU.
	cpu    int64
	starts []start
	prices map[string]int64
	// usual are the values of parts of a GPU in MIG mode for the workload among empty GPUs. Those among the existing
	// GPUs are values, once a survey has seen them.
	usual, values map[*mig.Table]*mig.Values
	// left is how many requests have left, at most leavingAfter.
	left int
	// gpus is what all nodes have.
	gpus Milli
}

// Leave implements Leaver.
func (k *Kerf) Leave() bool {
	if k.left == leavingAfter {
		return false
	}
	k.left++
	if k.left < leavingAfter {
		return false
	}
	k.vary()
	return true
}

// vary takes what holes are worth where requests leave, and the mix of those that are there is never quite the usual
// one.
func (k *Kerf) vary() {
	k.holes = variedHoles(k.workload.all, func(c Class) int64 { return k.workload.forecast(c, k.gpus) })
}

// start is the price of one place where a class of several GPUs can start, in thousandths of a GPU.
type start struct {
	Shape
	price int64
}

// NewKerf is Kerf for a workload on the nodes, which are taken as they are when empty.
func NewKerf(w Workload, nodes []Node) *Kerf {
	k := &Kerf{workload: w, holes: newHoles(w.all), prices: map[string]int64{},
		usual: instanceValues(w, nodes, mig.NewValues)}
	k.values = maps.Clone(k.usual)
	capacity := map[string]Milli{}
	all := Milli(0)
	for i := range nodes {
		capacity[nodes[i].Model] += Milli(len(nodes[i].GPUs)) * WholeGPU
		all += Milli(len(nodes[i].GPUs)) * WholeGPU
	}
	k.gpus = all
	cpu, gpu := int64(0), int64(0)
	for _, class := range w.all {
		if class.GPUs > 0 {
			cpu += class.Count * int64(class.CPU)
			gpu += class.Count * int64(class.Demand())
		}
		k.price(class, w.forecast(class, all), capacity)
		if class.GPUs > 1 {
			k.startPrice(class, w.forecast(class, all), nodes)
		}
	}
	k.cpu = max(1, cpu*1000/max(1, gpu))
	return k
}

func (k *Kerf) price(class Class, forecast int64, capacity map[string]Milli) {
	if class.Models == "" || class.GPUs == 0 {
		return
	}
	room := int64(0)
	for m, has := range capacity {
		if allows(class.Models, m) {
			room += int64(has)
		}
	}
	for m := range capacity {
		if allows(class.Models, m) {
			// In thousandths of a thousandth, since a rare class is a small part of its models.
			k.prices[m] += forecast * int64(class.Demand()) * 1000 / max(1, room)
		}
	}
}

func (k *Kerf) startPrice(class Class, forecast int64, nodes []Node) {
	places := int64(0)
	for i := range nodes {
		if allows(class.Models, nodes[i].Model) {
			places += slots(nodes[i].CPU, nodes[i].GPUs, nodes[i].resolve(class.Shape))
		}
	}
	if places > 0 {
		// The demand that is lost with a place, as often as the place is needed.
		k.starts = append(k.starts, start{class.Shape, int64(class.GPUs) * min(1000, forecast/places)})
	}
}

// slots is how many requests of the shape could start.
func slots(cpu Milli, gpus []Milli, s Shape) int64 {
	n := int64(count(gpus, s.Share) / s.GPUs)
	if s.CPU > 0 {
		n = min(n, int64(cpu/s.CPU))
	}
	return n
}

// Score implements Policy.
func (k *Kerf) Score(n *Node, s Shape) (int64, int) {
	if n.Table != nil && s.GPUs == 1 {
		return k.instanceScore(n, s)
	}
	return Each(n, s, k.terms(n, s))
}

// ScoreOn is the score of a resolved shape on GPUs with room that others choose: as many indexes as the shape has GPUs.
// None of them is in MIG mode.
func (k *Kerf) ScoreOn(n *Node, s Shape, gpus ...int) int64 {
	after := slices.Clone(n.GPUs)
	for _, g := range gpus {
		after[g] -= s.Share
	}
	return k.terms(n, s)(after, gpus[0])
}

// terms is the score of a way to place the shape, as Each takes it.
func (k *Kerf) terms(n *Node, s Shape) func(after []Milli, gpu int) int64 {
	weigh := k.weights()
	now := k.worth(n)
	return func(after []Milli, gpu int) int64 {
		score := floor(k.gain(n, s, now, after, gpu).sum(), weigh.step) * weigh.step * scoreUnit
		if k.left == leavingAfter {
			score += fuller(after)
		}
		return score
	}
}

// fuller decides between nodes that are equal by the terms, if requests leave again. Nodes with fewer GPUs come first,
// then the one with the least free capacity. So large nodes empty, and a request for a whole node finds one. It is less
// than a step.
func fuller(after []Milli) int64 {
	free := Milli(0)
	for _, left := range after {
		free += left
	}
	const most = maxGPUs * WholeGPU
	return int64(max(0, maxGPUs-len(after)))*int64(most+1) + int64(most-min(free, most))
}

// gain is the terms of the score of one way to place a shape, in thousandths of a GPU; what is lost is below 0.
type gain struct{ fragmentation, hole, stranded, starts, price int64 }

func (g gain) sum() int64 { return g.fragmentation + g.hole + g.stranded + g.starts + g.price }

// gain compares the node as it is with what its GPUs have after.
func (k *Kerf) gain(n *Node, s Shape, now worth, after []Milli, gpu int) gain {
	weigh, cpu := k.weights(), n.CPU-s.CPU
	g := gain{
		fragmentation: (now.fragmentation - k.workload.FragmentationIf(n, cpu, after)) / k.workload.Weight(),
		stranded:      -weigh.strand * max(0, k.strand(cpu, after)-now.stranded),
		starts:        -(weigh.startHalves * (now.startable - k.startable(n, cpu, after)) / 2),
		price:         -(weigh.priceHalves * k.prices[n.Model] * int64(s.Demand()) / 2_000_000),
	}
	if s.GPUs == 1 && s.Share < WholeGPU {
		g.hole = -weighHole * (k.holes.value(n.GPUs[gpu]) - k.holes.value(after[gpu]) - k.holes.size(s.Share))
	}
	return g
}

// worth is the terms of a node as it is.
type worth struct {
	fragmentation, stranded, startable int64
	// version is that of the node; by is whose terms they are.
	version uint64
	by      *Kerf
}

// worth is kept until the node changes: it is asked for by every shape.
func (k *Kerf) worth(n *Node) worth {
	if n.version > 0 && n.now.version == n.version && n.now.by == k {
		return n.now
	}
	n.now = worth{k.workload.Fragmentation(n), k.strand(n.CPU, n.GPUs), k.startable(n, n.CPU, n.GPUs), n.version, k}
	return n.now
}

// strand is the free GPU that the node's free CPU cannot feed.
func (k *Kerf) strand(cpu Milli, gpus []Milli) int64 {
	usable := int64(0)
	for _, left := range gpus {
		usable += k.holes.value(left)
	}
	return max(0, usable-int64(cpu)*1000/k.cpu)
}

func (k *Kerf) startable(n *Node, cpu Milli, gpus []Milli) int64 {
	sum := int64(0)
	for i := range k.starts {
		if s := &k.starts[i]; allows(s.Models, n.Model) {
			sum += s.price * slots(cpu, gpus, n.resolve(s.Shape))
		}
	}
	return sum
}

func floor(d, by int64) int64 {
	q := d / by
	if d%by < 0 {
		q--
	}
	return q
}
