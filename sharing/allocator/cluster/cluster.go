// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
)

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

// Chooser is a Policy that looks at all nodes for each decision, and not at one score for each.
type Chooser interface {
	// Choose is Cluster.Choose for the nodes as they are. It must not change them.
	Choose(nodes []*Node, r Request) (Placement, bool)
}

// Leaver is a Policy that looks at whether requests leave again.
type Leaver interface {
	// Leave hears that one did; true when scores differ from now on.
	Leave() bool
}

// Observer is a Policy with scores that depend on the free capacity of all GPUs in MIG mode.
type Observer interface {
	// Observe looks at the nodes as they are; true when scores differ from now on. It must not change them.
	Observe(nodes []*Node) bool
}

// Charger is a Policy that reserves another amount than the requested one.
type Charger interface {
	// Charge is what the request takes: at least what it asks for.
	Charge(r Request) Request
}

// maxShapes bounds the memory of kept scores: a shape takes 28 bytes a node.
const maxShapes = 256

// Cluster is the nodes and what is free on them.
type Cluster struct {
	nodes    []*Node
	policy   Policy
	rankings map[Shape]*ranking
	recent   []Shape
	// log has the nodes that changed last, changes how many changes there were.
	log     []int32
	changes uint64
	// geometries are the MIG geometries, by table.
	geometries map[*mig.Table]*geometry
	// migGPUs is how many GPUs are in MIG mode, and unsurveyed how many changes of their nodes no survey has seen. If
	// unsure is true, scores have become void otherwise.
	migGPUs, unsurveyed int
	unsure              bool
}

// New is a cluster of copies of the nodes. Their order is the order in which ties are decided.
func New(nodes []Node, policy Policy) *Cluster {
	c := &Cluster{policy: policy, rankings: map[Shape]*ranking{}, geometries: map[*mig.Table]*geometry{}}
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
	if p, ok := c.policy.(Chooser); ok {
		return p.Choose(c.nodes, r)
	}
	c.survey()
	ranks := c.ranked(r.Shape)
	best := ranks.top()
	if best >= 0 && c.nodes[best].Memory < r.Memory {
		best = ranks.richest(c.nodes, r)
	}
	if best < 0 {
		return Placement{}, false
	}
	return c.on(best, ranks, r), true
}

// Learn reports a request that arrived to a policy that learns. It is called once for each request, however often the
// policy chooses for it.
func (c *Cluster) Learn(r Request) {
	if l, ok := c.policy.(Learner); ok && l.Learn(r) {
		c.unsure = true
		c.forget()
	}
}

// Take reserves a placement. It changes nothing if the placement does not fit.
func (c *Cluster) Take(r Request, p Placement) error {
	n := c.nodes[p.Node]
	if why := Evaluate(n, r); why != Fits {
		return fmt.Errorf("take %s: %s", n.Name, why)
	}
	if len(p.GPUs) != r.GPUs {
		return fmt.Errorf("take %s: %d GPUs placed, %d requested", n.Name, len(p.GPUs), r.GPUs)
	}
	if err := c.fit(r, p); err != nil {
		return fmt.Errorf("take %s: %w", n.Name, err)
	}
	c.move(r, p, -1)
	return nil
}

// fit says what is wrong with the GPUs of a placement, and with the places on them.
func (c *Cluster) fit(r Request, p Placement) error {
	n := c.nodes[p.Node]
	s := n.resolve(r.Shape)
	partitioned := n.Table != nil && r.GPUs > 0
	if partitioned != (p.Starts != nil) || partitioned && len(p.Starts) != len(p.GPUs) {
		return fmt.Errorf("%d places for MIG instances on %d GPUs", len(p.Starts), len(p.GPUs))
	}
	for i, g := range p.GPUs {
		if g < 0 || g >= len(n.GPUs) || n.GPUs[g] < s.Share || (i > 0 && g <= p.GPUs[i-1]) {
			return fmt.Errorf("GPU %d: %s", g, LacksCapacity)
		}
		if !partitioned {
			continue
		}
		if profile, _ := n.instance(s); !n.Table.Fits(n.instances[g],
			mig.Place{Profile: profile.ID, Start: p.Starts[i]}) {
			return fmt.Errorf("GPU %d: no place for %s at %d", g, profile.Name, p.Starts[i])
		}
	}
	return nil
}

// Release gives back what Take booked; the request and the placement are those of Take.
func (c *Cluster) Release(r Request, p Placement) {
	c.move(r, p, 1)
	if l, ok := c.policy.(Leaver); ok && l.Leave() {
		c.unsure = true
		c.forget()
	}
}

func (c *Cluster) move(r Request, p Placement, sign Milli) {
	n := c.nodes[p.Node]
	n.CPU += sign * r.CPU
	if sign < 0 {
		n.Memory -= r.Memory
	} else {
		n.Memory += r.Memory
	}
	share := n.share(r.Shape)
	for i, g := range p.GPUs {
		if i < len(p.Starts) {
			if profile, ok := n.instance(r.Shape); ok {
				n.hold(g, p.Starts[i], profile, sign)
			}
		}
		if g < len(n.aside) && n.aside[g] != inUse {
			n.aside[g] += sign * share
			continue
		}
		n.GPUs[g] += sign * share
	}
	n.kinds[kindOf(r.Shape)] -= int(sign)
	c.changed(p.Node)
}

// Cordon says whether a node takes new requests. What it holds stays.
func (c *Cluster) Cordon(node int, cordoned bool) error {
	if node < 0 || node >= len(c.nodes) {
		return fmt.Errorf("cordon node %d: there are %d", node, len(c.nodes))
	}
	c.nodes[node].Cordoned = cordoned
	c.changed(node)
	return nil
}

// Withhold says whether a GPU takes new requests: not while it is unhealthy, or has MIG instances. Its placements
// stay, and what is released on it is free again when it comes back.
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
	n.now, n.geometry = worth{}, c.geometries[n.Table]
	n.empty()
	if n.Table != nil {
		c.geometries[n.Table] = n.sharedGeometry()
		c.migGPUs, c.unsure = c.migGPUs+len(n.GPUs), true
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

// ObserveFraction divides the GPUs in MIG mode: one GPU of so many may change without a new survey. The prices of many
// GPUs hardly change with one, and each survey makes every score void.
const ObserveFraction = 128

// survey shows the nodes to a policy that looks at all of them, where that may change its scores.
func (c *Cluster) survey() {
	if c.migGPUs == 0 || !c.unsure && c.unsurveyed <= c.migGPUs/ObserveFraction {
		return
	}
	c.unsurveyed, c.unsure = 0, false
	if s, ok := c.policy.(Observer); ok && s.Observe(c.nodes) {
		c.forget()
	}
}

// roomsOf is how many GPUs of each table have which units free, of those that take new requests.
func roomsOf(nodes []*Node) map[*mig.Table]mig.FreeCapacity {
	rooms := map[*mig.Table]mig.FreeCapacity{}
	for _, n := range nodes {
		if n.Table == nil || n.Cordoned {
			continue
		}
		room := rooms[n.Table]
		if room == nil {
			room = mig.FreeCapacity{}
			rooms[n.Table] = room
		}
		for g, o := range n.instances {
			if g >= len(n.aside) || n.aside[g] == inUse {
				room[n.Table.Free(o)]++
			}
		}
	}
	return rooms
}
