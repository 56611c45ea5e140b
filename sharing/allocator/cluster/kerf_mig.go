// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

// scoreUnit is a thousandth of a GPU in a score. It is above 1 so that scores of MIG instances differ more finely.
const scoreUnit = 100_000

// instanceValues values the parts of GPUs in MIG mode, for each table, by how often the workload wants which profile.
func instanceValues(w Workload, nodes []Node,
	value func(*mig.Table, mig.Demand) *mig.Values) map[*mig.Table]*mig.Values {
	out := map[*mig.Table]*mig.Values{}
	for i := range nodes {
		n := &nodes[i]
		if n.Table == nil || out[n.Table] != nil {
			continue
		}
		demand := mig.Demand{}
		for _, c := range w.all {
			if c.GPUs == 0 {
				continue
			}
			if p, ok := n.instance(c.Shape); ok {
				demand[p.ID] += float64(c.Count)
			}
		}
		out[n.Table] = value(n.Table, demand)
	}
	return out
}

// Observe implements Observer: what the parts of GPUs in MIG mode are worth depends on how many others there are
// of each.
func (k *Kerf) Observe(nodes []*Node) bool { return k.Rooms(roomsOf(nodes)) }

// Rooms is Observe for callers with another cluster state: the number of GPUs of each table by free memory slices. It
// returns true if scores differ from now on.
func (k *Kerf) Rooms(rooms map[*mig.Table]mig.FreeCapacity) bool {
	known := false
	for table, room := range rooms {
		if usual := k.usual[table]; usual != nil {
			k.values[table], known = usual.In(room), true
		}
	}
	return known
}

// valuesOf are the values for the node's GPUs.
func (k *Kerf) valuesOf(n *Node) *mig.Values {
	if v := k.values[n.Table]; v != nil {
		return v
	}
	return n.usual()
}

// Start implements Starter.
func (k *Kerf) Start(n *Node, gpu, profile int) int {
	p, _ := n.Table.Profile(profile)
	start, _ := n.best(gpu, p, k.valuesOf(n))
	return start
}

// instanceScore is Score on a GPU in MIG mode. What the instance takes from the value of its GPU replaces fragmentation
// and holes. Of equal GPUs it prefers the one with less free capacity.
func (k *Kerf) instanceScore(n *Node, s Shape) (int64, int) {
	now, v := k.worth(n), k.valuesOf(n)
	p, _ := n.instance(s)
	best, at := int64(0), -1
	for g, left := range n.GPUs {
		if n.alike(g) || !n.room(g, left, s) {
			continue
		}
		_, loss := n.best(g, p, v)
		if score := k.instanceLoss(n, s, now, g, loss); at < 0 || score > best {
			best, at = score, g
		}
	}
	return best, at
}

// instanceLoss is the score of an instance that takes so much from the value of its GPU.
func (k *Kerf) instanceLoss(n *Node, s Shape, now worth, gpu int, loss mig.Value) int64 {
	weigh := k.weights()
	left := n.GPUs[gpu]
	n.GPUs[gpu] = left - s.Share
	d := -weigh.strand*max(0, k.strand(n.CPU-s.CPU,
		n.GPUs)-now.stranded) - weigh.priceHalves*k.prices[n.Model]*int64(s.Share)/2_000_000
	n.GPUs[gpu] = left
	return d*scoreUnit - int64(loss)*(scoreUnit*int64(WholeGPU)/int64(mig.One)) - int64(
		n.Table.Free(n.instances[gpu]).Count())
}

// ScoreInstanceOn is the score of a resolved shape as a MIG instance that others place: on a GPU, from a memory slice.
// It is false if that place is taken, or none of the profile.
func (k *Kerf) ScoreInstanceOn(n *Node, s Shape, gpu, start int) (int64, bool) {
	p, ok := n.instance(s)
	at := mig.Place{Profile: p.ID, Start: start}
	if !ok || !slices.Contains(p.Starts, start) || !n.Table.Fits(n.instances[gpu], at) {
		return 0, false
	}
	units, _ := n.Table.Mask(at)
	loss := k.valuesOf(n).Loss(n.Table.Free(n.instances[gpu]), units)
	return k.instanceLoss(n, s, k.worth(n), gpu, loss), true
}

// Term is one part of a score, in thousandths of a GPU: what a placement gains, or loses below 0, in one respect.
type Term struct {
	Name  string
	Value int64
}

// Terms are the parts of Score for the GPU that Score chooses; Score may round their sum. They are:
//   - fragmentation: what the usual requests can use less of
//   - hole: what a share spoils of its GPU
//   - instance: the same of a MIG instance
//   - stranded: GPU capacity without CPU to go with it
//   - starts: lost places for requests of several GPUs
//   - price: of a scarce model
func (k *Kerf) Terms(n *Node, s Shape) []Term {
	now := k.worth(n)
	if n.Table != nil && s.GPUs == 1 {
		return k.instanceTerms(n, s, now)
	}
	var best gain
	seen, most := false, int64(0)
	step := k.weights().step
	Each(n, s, func(after []Milli, gpu int) int64 {
		g := k.gain(n, s, now, after, gpu)
		score := floor(g.sum(), step)
		if !seen || score > most {
			best, most, seen = g, score, true
		}
		return score
	})
	return []Term{{"fragmentation", best.fragmentation}, {"hole", best.hole}, {"stranded", best.stranded},
		{"starts", best.starts}, {"price", best.price}}
}

func (k *Kerf) instanceTerms(n *Node, s Shape, now worth) []Term {
	_, gpu := k.instanceScore(n, s)
	p, ok := n.instance(s)
	if gpu < 0 || !ok {
		return nil
	}
	_, loss := n.best(gpu, p, k.valuesOf(n))
	after := append([]Milli(nil), n.GPUs...)
	after[gpu] -= s.Share
	weigh := k.weights()
	return []Term{
		{"instance", -int64(loss) * int64(WholeGPU) / int64(mig.One)},
		{"stranded", -weigh.strand * max(0, k.strand(n.CPU-s.CPU, after)-now.stranded)},
		{"price", -(weigh.priceHalves * k.prices[n.Model] * int64(s.Share) / 2_000_000)},
	}
}
