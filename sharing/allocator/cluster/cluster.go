// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "fmt"

// Policy says how good a node is for a shape.
type Policy interface {
	// Score is called only for a node that has the CPU, the model and the GPUs. The highest score wins; the
	// first node wins a tie. The GPU counts for a request of one GPU only; of several the tightest are taken.
	// The answer depends on node and shape alone: it is kept until the node changes.
	Score(n *Node, s Shape) (score int64, gpu int)
}

// Fresh is a Policy whose scores hold for one decision only.
type Fresh interface {
	// Draw begins a decision.
	Draw()
}

// Leaver is a Policy that looks at whether requests leave again.
type Leaver interface {
	// Leave hears that one did; true when scores differ from now on.
	Leave() bool
}

// Booker is a Policy that books something else than what was asked for.
type Booker interface {
	// Books is what the request takes: at least what it asks for.
	Books(r Request) Request
}

// maxShapes bounds the memory of kept scores: a shape takes 32 bytes a node.
const maxShapes = 256

type scored struct {
	version uint64
	score   int64
	gpu     int
	fits    bool
}

// Cluster is the nodes and what is free on them.
type Cluster struct {
	nodes  []*Node
	policy Policy
	cache  map[Shape][]scored
	recent []Shape
}

// New is a cluster of copies of the nodes. Their order is the order in which ties are decided.
func New(nodes []Node, policy Policy) *Cluster {
	c := &Cluster{policy: policy, cache: map[Shape][]scored{}}
	for _, n := range nodes {
		c.Add(n)
	}
	return c
}

// Node is the node at an index of the order given to New. It must not be changed.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Len is the number of nodes.
func (c *Cluster) Len() int { return len(c.nodes) }

// Choose finds the best placement without taking it; false when no node can answer.
func (c *Cluster) Choose(r Request) (Placement, bool) {
	best, kept := -1, c.scores(r.Shape)
	if f, ok := c.policy.(Fresh); ok {
		f.Draw()
		clear(kept)
	}
	for i, n := range c.nodes {
		k := &kept[i]
		if k.version != n.version {
			*k = scored{version: n.version}
			if !n.Cordoned && n.CPU >= r.CPU && judgeGPUs(n, r.Shape) == Fits {
				score, gpu := c.policy.Score(n, n.resolve(r.Shape))
				k.score, k.gpu, k.fits = score, gpu, true
			}
		}
		if k.fits && n.Memory >= r.Memory && (best < 0 || k.score > kept[best].score) {
			best = i
		}
	}
	if best < 0 {
		return Placement{}, false
	}
	if r.GPUs == 1 {
		return Placement{best, []int{kept[best].gpu}}, true
	}
	return Placement{best, c.nodes[best].chosen(r.GPUs, c.nodes[best].share(r.Shape))}, true
}

// Learn tells a policy that learns of a request that arrived; each is told once, however often it is chosen for.
func (c *Cluster) Learn(r Request) {
	if l, ok := c.policy.(Learner); ok && l.Learn(r) {
		c.forget()
	}
}

// forget makes every kept score void.
func (c *Cluster) forget() {
	for _, n := range c.nodes {
		n.version++
	}
}

func (c *Cluster) scores(s Shape) []scored {
	if kept, ok := c.cache[s]; ok {
		return kept
	}
	var kept []scored
	if len(c.recent) == maxShapes {
		kept = c.cache[c.recent[0]]
		delete(c.cache, c.recent[0])
		c.recent = append(c.recent[:0], c.recent[1:]...)
		clear(kept)
	} else {
		kept = make([]scored, len(c.nodes))
	}
	c.cache[s], c.recent = kept, append(c.recent, s)
	return kept
}

// Take books a placement. It changes nothing when the placement does not fit.
func (c *Cluster) Take(r Request, p Placement) error {
	n := c.nodes[p.Node]
	if why := Judge(n, r); why != Fits {
		return fmt.Errorf("take %s: %s", n.Name, why)
	}
	if len(p.GPUs) != r.GPUs {
		return fmt.Errorf("take %s: %d GPUs placed, %d asked for", n.Name, len(p.GPUs), r.GPUs)
	}
	share := n.share(r.Shape)
	for i, g := range p.GPUs {
		if g < 0 || g >= len(n.GPUs) || n.GPUs[g] < share || (i > 0 && g <= p.GPUs[i-1]) {
			return fmt.Errorf("take %s: GPU %d: %s", n.Name, g, LacksRoom)
		}
	}
	c.move(n, r, p, -1)
	return nil
}

// Release gives back what Take booked; the request and the placement are those of Take.
func (c *Cluster) Release(r Request, p Placement) {
	c.move(c.nodes[p.Node], r, p, 1)
	if l, ok := c.policy.(Leaver); ok && l.Leave() {
		c.forget()
	}
}

func (c *Cluster) move(n *Node, r Request, p Placement, sign Milli) {
	n.CPU += sign * r.CPU
	if sign < 0 {
		n.Memory -= r.Memory
	} else {
		n.Memory += r.Memory
	}
	share := n.share(r.Shape)
	for _, g := range p.GPUs {
		if g < len(n.aside) && n.aside[g] != inUse {
			n.aside[g] += sign * share
			continue
		}
		n.GPUs[g] += sign * share
	}
	n.kinds[kindOf(r.Shape)] -= int(sign)
	n.version++
}

// Explain counts the nodes by why they cannot answer the request.
func (c *Cluster) Explain(r Request) map[Reason]int {
	why := map[Reason]int{}
	for _, n := range c.nodes {
		why[Judge(n, r)]++
	}
	return why
}
