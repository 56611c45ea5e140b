// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

// scored is what a node is worth for a shape, as long as it has the version.
type scored struct {
	version uint64
	score   int64
	gpu     int32
	fits    bool
}

// ranking is the scores of one shape on all nodes, with a tree over them. After a change of a node, the best is known
// in log2(nodes) steps.
type ranking struct {
	scores []scored
	// inner has for each inner place k of the tree the better of places 2k and 2k+1, as an index of scores. It is none
	// when nothing fits below. The scores are places len(scores) and beyond.
	inner []int32
	// seen is how many changes of the cluster are in it; stale that none is.
	seen  uint64
	stale bool
}

const none int32 = -1

// top is the best node, the first of equally good ones; none when the shape fits nowhere.
func (r *ranking) top() int {
	if len(r.scores) == 0 {
		return int(none)
	}
	return int(r.at(1))
}

func (r *ranking) at(place int) int32 {
	if place < len(r.scores) {
		return r.inner[place]
	}
	if i := place - len(r.scores); r.scores[i].fits {
		return int32(i) //nolint:gosec // a cluster has fewer nodes than an int32 counts
	}
	return none
}

func (r *ranking) better(a, b int32) int32 {
	switch {
	case a == none:
		return b
	case b == none:
		return a
	}
	if x, y := r.scores[a].score, r.scores[b].score; x > y || x == y && a < b {
		return a
	}
	return b
}

// build makes the tree again.
func (r *ranking) build() {
	if len(r.inner) != len(r.scores) {
		r.inner = make([]int32, len(r.scores))
	}
	for k := len(r.scores) - 1; k > 0; k-- {
		r.inner[k] = r.better(r.at(2*k), r.at(2*k+1))
	}
}

// lift brings a changed score up the tree.
func (r *ranking) lift(i int) {
	for k := (len(r.scores) + i) / 2; k > 0; k /= 2 {
		was, is := r.inner[k], r.better(r.at(2*k), r.at(2*k+1))
		r.inner[k] = is
		if is == was && int(is) != i {
			return // others won before and now, so what is above has not changed
		}
	}
}

// richest is the best node with that much memory, which no shape knows of.
func (r *ranking) richest(nodes []*Node, req Request) int {
	best := int(none)
	for i := range r.scores {
		k := &r.scores[i]
		if k.fits && (best < 0 || k.score > r.scores[best].score) && nodes[i].Memory >= req.Memory {
			best = i
		}
	}
	return best
}

// ranked is the ranking of the shape, up to date.
func (c *Cluster) ranked(s Shape) *ranking {
	r := c.ranking(s)
	if f, ok := c.policy.(Fresh); ok {
		f.Draw()
		clear(r.scores)
		r.stale = true
	}
	// Many single changes cost more than one pass over all nodes.
	if behind := c.changes - r.seen; r.stale || behind > uint64(len(c.log)) {
		for i := range c.nodes {
			r.rescore(i, c.nodes[i], s, c.policy)
		}
		r.build()
	} else {
		for ; r.seen < c.changes; r.seen++ {
			if i := int(c.log[r.seen%uint64(len(c.log))]); r.rescore(i, c.nodes[i], s, c.policy) {
				r.lift(i)
			}
		}
	}
	r.seen, r.stale = c.changes, false
	return r
}

// rescore is true when the node has changed since it was scored.
func (r *ranking) rescore(i int, n *Node, s Shape, policy Policy) bool {
	k := &r.scores[i]
	if k.version == n.version {
		return false
	}
	*k = scored{version: n.version}
	if !n.Cordoned && n.CPU >= s.CPU && judgeGPUs(n, s) == Fits {
		score, gpu := policy.Score(n, n.resolve(s))
		k.score, k.gpu, k.fits = score, int32(gpu), true //nolint:gosec // a node has few GPUs
	}
	return true
}

// ranking is that of the shape; the oldest gives its place where there are too many.
func (c *Cluster) ranking(s Shape) *ranking {
	if r, ok := c.rankings[s]; ok {
		return r
	}
	r := &ranking{scores: make([]scored, len(c.nodes))}
	if len(c.recent) == maxShapes {
		r = c.rankings[c.recent[0]]
		delete(c.rankings, c.recent[0])
		c.recent = append(c.recent[:0], c.recent[1:]...)
		clear(r.scores)
	}
	r.stale = true
	c.rankings[s], c.recent = r, append(c.recent, s)
	return r
}

// changed tells the rankings of a change of the node.
func (c *Cluster) changed(i int) {
	c.nodes[i].version++
	if c.nodes[i].Table != nil {
		c.unsurveyed++
	}
	c.log[c.changes%uint64(len(c.log))] = int32(i) //nolint:gosec // as above
	c.changes++
}

// forget makes every score void.
func (c *Cluster) forget() {
	for _, n := range c.nodes {
		n.version++
	}
	for _, r := range c.rankings {
		r.stale = true
	}
}
