// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Fit answers whether pods fit on what is free, as it is printed in JSON.
type Fit struct {
	Policy string `json:"policy"`
	// Before is the allocated percent of the cluster before the new pods came, After when those that fit are placed.
	Before float64   `json:"allocatedPercentBefore"`
	After  float64   `json:"allocatedPercentAfter"`
	Pods   []TypeFit `json:"pods"`
	// More is what would make room for those that do not fit, for each model that could; empty when all fit.
	More []More `json:"more,omitempty"`
}

// TypeFit is the pods of one type.
type TypeFit struct {
	Type      string `json:"type"`
	Requested int    `json:"requested"`
	Placed    int    `json:"placed"`
	// Reasons has the reasons of the nodes for the first pod that was refused, the most frequent first.
	Reasons []Cause `json:"reasons,omitempty"`
}

// Cause is a reason, and of how many nodes.
type Cause struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
	// Example is what one of the nodes says, with its numbers.
	Example string `json:"example"`
}

// More is nodes to add.
type More struct {
	Model string `json:"model"`
	Nodes int    `json:"nodes"`
	GPUs  int    `json:"gpus"`
}

// mostAdded is how many nodes are tried before it is given up.
const mostAdded = 1000

// Fits lets the arrivals come first and then the pods, in their order.
func (e Experiment) Fits(arrivals, pods []Pod) (Fit, error) {
	t, err := e.start()
	if err != nil {
		return Fit{}, err
	}
	var there []held
	place := func(p *Pod) (bool, error) {
		h, ok, err := t.arrive(p)
		if ok {
			there = append(there, h)
		}
		return ok, err
	}
	for i := range arrivals {
		if _, err := place(&arrivals[i]); err != nil {
			return Fit{}, err
		}
	}
	f := Fit{Before: round(t.percent(t.allocated))}
	var refused []*Pod
	at := map[string]int{}
	for i := range pods {
		p := &pods[i]
		k, known := at[p.Type]
		if !known {
			k = len(f.Pods)
			at[p.Type], f.Pods = k, append(f.Pods, TypeFit{Type: p.Type})
		}
		line := &f.Pods[k]
		line.Requested++
		ok, err := place(p)
		switch {
		case err != nil:
			return Fit{}, err
		case ok:
			line.Placed++
			continue
		case line.Reasons == nil:
			line.Reasons = causes(t.cluster.Refusals(t.request(p)))
		}
		refused = append(refused, p)
	}
	f.After = round(t.percent(t.allocated))
	if len(refused) == 0 {
		return f, nil
	}
	for _, kind := range e.kinds() {
		if m, ok, err := e.more(there, refused, kind); err != nil {
			return Fit{}, err
		} else if ok {
			f.More = append(f.More, m)
		}
	}
	return f, nil
}

// causes counts the refusals by reason.
func causes(refusals []cluster.Refusal) []Cause {
	var out []Cause
	for _, r := range refusals {
		i := slices.IndexFunc(out, func(c Cause) bool { return c.Reason == r.Reason.String() })
		if i < 0 {
			i, out = len(out), append(out, Cause{Reason: r.Reason.String(), Example: r.Node + ": " + r.Text})
		}
		out[i].Nodes++
	}
	slices.SortStableFunc(out, func(a, b Cause) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return out
}

// kinds has one node for each model: of the shape that most nodes of the model have, and the first of those.
func (e Experiment) kinds() []cluster.Node {
	type shape struct {
		model    string
		cpu      cluster.Milli
		gpus     int
		mebibyte uint64
	}
	counts := map[shape]int{}
	of := func(n *cluster.Node) shape { return shape{n.Model, n.CPU, len(n.GPUs), uint64(n.Memory) >> 20} }
	var best []cluster.Node
	for i := range e.Nodes {
		counts[of(&e.Nodes[i])]++
	}
	for i := range e.Nodes {
		n := &e.Nodes[i]
		if len(n.GPUs) == 0 {
			continue
		}
		k := slices.IndexFunc(best, func(b cluster.Node) bool { return b.Model == n.Model })
		if k < 0 {
			best = append(best, *n)
		} else if counts[of(n)] > counts[of(&best[k])] {
			best[k] = *n
		}
	}
	slices.SortFunc(best, func(a, b cluster.Node) int { return cmp.Compare(a.Model, b.Model) })
	return best
}

// more adds nodes of a kind, one by one, until the refused pods fit; false when a further one is of no use.
func (e Experiment) more(there []held, refused []*Pod, kind cluster.Node) (More, bool, error) {
	t, err := e.start()
	if err != nil {
		return More{}, false, err
	}
	for _, h := range there {
		if err := t.cluster.Take(h.taken, h.place); err != nil {
			return More{}, false, err
		}
	}
	kind.Cordoned = false
	m := More{Model: kind.Model}
	for len(refused) > 0 {
		if m.Nodes == mostAdded {
			return m, false, nil
		}
		t.cluster.Add(kind)
		m.Nodes++
		m.GPUs += len(kind.GPUs)
		var still []*Pod
		for _, p := range refused {
			_, ok, err := t.arrive(p)
			if err != nil {
				return m, false, err
			}
			if !ok {
				still = append(still, p)
			}
		}
		if len(still) == len(refused) {
			return m, false, nil
		}
		refused = still
	}
	return m, true, nil
}
