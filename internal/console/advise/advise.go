// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package advise finds the cheapest change that would place a pending pod. A change is one MIG mode switch, fewer GiB,
// moves of running pods, one eviction or one node.
//
// It asks the scheduler's cluster state about each change, and has no fit function. Package defrag plans the moves. It
// changes nothing. It promises nothing about CPU, host memory, taints and affinity, which the cluster state lacks.
package advise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// mostEvictions bounds the evictions that are tried for one pod.
const mostEvictions = 20000

// Cluster is what the advice is made from.
type Cluster struct {
	// State has every node and pod.
	State *scheduler.ClusterState
	// Config is the agents' config; nil if it is not known.
	Config *config.Config
	// Nodes are the nodes that have a report, by name. Pods are all pods by UID, also those that request nothing of
	// Kerf.
	Nodes map[string]simulate.LiveNode
	Pods  map[string]*model.SeenPod
}

// Kinds of change.
const (
	ModeSwitch = "mode switch"
	FewerGiB   = "fewer GiB"
	Move       = "move"
	Eviction   = "eviction"
	AddNode    = "node"
)

// Change is one change after which the pod fits.
type Change struct {
	Kind string `json:"kind"`
	// Text is one sentence for people.
	Text string `json:"text"`
	Node string `json:"node,omitempty"`
	GPU  string `json:"gpu,omitempty"`
	// Namespace and Pod are those of the pod that an eviction ends.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
}

// Advice is what is known of a pending pod.
type Advice struct {
	// Reason is why no node takes the pod now; empty if one does.
	Reason string `json:"reason,omitempty"`
	// Fits are nodes that take it now.
	Fits []string `json:"fits,omitempty"`
	// Changes are the possible changes, the cheapest first.
	Changes []Change `json:"changes"`
}

// mostFits bounds the nodes that are named.
const mostFits = 5

// Pod is the advice for a pod. Sees reports whether the viewer may see a namespace: no move or eviction of another pod
// is proposed.
func (c Cluster) Pod(p model.SeenPod, sees func(namespace string) bool, now time.Time) (Advice, error) {
	a := Advice{Changes: []Change{}}
	w, ok, err := scheduler.PodRequestOf(p.Pod)
	if err != nil {
		return a, fmt.Errorf("read the request of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if !ok {
		return a, nil
	}
	if a.Reason = c.State.Explain(w, now); a.Reason == "" {
		fits := c.State.Fitting(w, now)
		a.Fits = fits[:min(len(fits), mostFits)]
		return a, nil
	}
	for _, find := range []func() (Change, bool){
		func() (Change, bool) { return c.modeSwitch(w, now) },
		func() (Change, bool) { return c.fewer(p, now) },
		func() (Change, bool) { return c.moves(p, w, sees, now) },
		func() (Change, bool) { return c.eviction(w, sees, now) },
		func() (Change, bool) { return c.node(w, now) },
	} {
		if change, ok := find(); ok {
			a.Changes = append(a.Changes, change)
		}
	}
	return a, nil
}

// candidate is a pod that could be evicted.
type candidate struct {
	pod    *model.SeenPod
	node   string
	memory int64
}

// eviction finds the least important pod whose end would let the pod fit: the lowest priority, then the least memory.
func (c Cluster) eviction(w scheduler.PodRequest, sees func(string) bool, now time.Time) (Change, bool) {
	var all []candidate
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		switch c.State.Fit(w, name, now).Reason {
		case scheduler.LacksCapacity, scheduler.LacksInstance:
			all = append(all, c.candidates(name, sees)...)
		default:
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.pod.Priority, b.pod.Priority), cmp.Compare(a.memory, b.memory))
	})
	for _, v := range all[:min(len(all), mostEvictions)] {
		if c.State.FitIf(w, v.node, scheduler.WhatIf{Without: []string{v.pod.UID}}, now).Reason == scheduler.Fits {
			return Change{Kind: Eviction, Node: v.node, Namespace: v.pod.Namespace, Pod: v.pod.Name,
				Text: fmt.Sprintf("Evict pod %s/%s (priority %d) from node %s.", v.pod.Namespace, v.pod.Name,
					v.pod.Priority, v.node)}, true
		}
	}
	return Change{}, false
}

func (c Cluster) candidates(node string, sees func(string) bool) []candidate {
	memory := map[string]int64{}
	for _, g := range c.Nodes[node].Report.Grants {
		for _, f := range g.Shares {
			memory[g.PodUID] += f.MemoryBytes
		}
	}
	var out []candidate
	for _, uid := range slices.Sorted(maps.Keys(memory)) {
		p, ok := c.Pods[uid]
		if ok && sees(p.Namespace) && p.Annotations[sharing.DoNotDisruptAnnotation] != "true" {
			out = append(out, candidate{p, node, memory[uid]})
		}
	}
	return out
}
