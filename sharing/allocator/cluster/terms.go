// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "github.com/kerf-gpu/kerf/mig"

// Term is one part of a score, in thousandths of a GPU: what a placement gains, or loses below 0, in one respect.
type Term struct {
	Name  string
	Value int64
}

// Splitter is a Policy whose scores are sums.
type Splitter interface {
	// Terms are those of Score, for the GPU that Score chooses. Score may round their sum.
	Terms(n *Node, s Shape) []Term
}

// Terms implements Splitter. They are: fragments (what the usual requests can make less use of), hole (what a share spoils
// of its GPU), instance (the same of a MIG instance), stranded (GPU without CPU to go with it), starts (places for requests
// of several GPUs that are lost) and price (of a scarce model).
func (k *Kerf) Terms(n *Node, s Shape) []Term {
	now := k.worth(n)
	if n.Table != nil && s.GPUs == 1 {
		return k.cutTerms(n, s, now)
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
	return []Term{{"fragments", best.fragments}, {"hole", best.hole}, {"stranded", best.stranded}, {"starts", best.starts}, {"price", best.price}}
}

func (k *Kerf) cutTerms(n *Node, s Shape, now worth) []Term {
	_, gpu := k.cutScore(n, s)
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
