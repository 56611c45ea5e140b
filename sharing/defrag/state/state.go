// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package state plans moves of pods in a cluster state of the scheduler.
package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/defrag"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Pod is a pod with a request for GPUs.
type Pod struct {
	sharing.Pod
	Request scheduler.PodRequest
	// Owner is the controller that would replace it; empty if there is none. Fixed pods belong to their node.
	Owner string
	Fixed bool
	// Ending is true while the pod is being deleted, Started the time when it began to run; zero before.
	Ending  bool
	Started time.Time
	// Gang is true for a member of a gang, whose other members a move would disturb.
	Gang bool
	// Class is the name of its priority class, Karpenter the value of Karpenter's annotation.
	Class, Karpenter string
	// Budgets are the disruption budgets that cover the pod, as indexes of Input.Budgets.
	Budgets []int
}

// Input is a cluster.
type Input struct {
	State *scheduler.ClusterState
	// Free is what the machines have free in addition to GPUs.
	Free map[string]scheduler.Free
	Pods []Pod
	// Budgets are how many disruptions each disruption budget allows now.
	Budgets []int
	Rules   Rules
	Limits  defrag.Limits
	Now     time.Time
}

// Rules say which pods Kerf can move: those of the namespaces and of the priority classes. Any stands for all.
type Rules struct {
	Namespaces, PriorityClasses []string
	Any                         bool
}

// StayReason says why a pod must stay; empty if Kerf can move it.
func (r Rules) StayReason(p *Pod) string {
	switch {
	case p.Annotations[sharing.DoNotDisruptAnnotation] == "true":
		return "annotation " + sharing.DoNotDisruptAnnotation
	case p.Karpenter == "true":
		return "annotation karpenter.sh/do-not-disrupt"
	case p.Fixed:
		return "it is a static pod or belongs to a DaemonSet"
	case p.Owner == "":
		return "no controller would replace it"
	case p.Gang:
		return "it is a member of a gang"
	case !r.Any && !slices.Contains(r.Namespaces, p.Namespace) && !slices.Contains(r.PriorityClasses, p.Class):
		return fmt.Sprintf("namespace %s has no label %s=true", p.Namespace, sharing.LabelDefrag)
	}
	return ""
}

// stayReason says why a pod must stay now; empty if it can move.
func (in *Input) stayReason(p *Pod) string {
	switch {
	case p.Ending:
		return "it is being deleted"
	case p.Started.IsZero():
		return "it does not run yet"
	}
	return in.Rules.StayReason(p)
}

// ClusterState is a cluster state as package defrag uses it.
type ClusterState struct {
	defrag.Problem
	trial *scheduler.Trial
	wants []scheduler.PodRequest
	refs  [][]sharing.GPURef
}

var _ defrag.Cluster = (*ClusterState)(nil)

// New reads a cluster. Pods without GPUs only take CPU and memory, which Input.Free does not have any more.
func New(in Input) *ClusterState {
	b := &ClusterState{trial: in.State.Trial(in.Free, in.Now)}
	b.Budgets, b.Limits = in.Budgets, in.Limits
	at := map[string]int{}
	for i, name := range b.trial.Names() {
		at[name] = i
		n := defrag.Node{Name: name, Pool: b.trial.Pool(i)}
		refs := b.trial.GPUs(i)
		for _, ref := range refs {
			n.GPUs = append(n.GPUs, ref.String())
		}
		b.Problem.Nodes, b.refs = append(b.Problem.Nodes, n), append(b.refs, refs)
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		out := defrag.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Priority: p.Priority, Budgets: p.Budgets,
			StayReason: in.stayReason(p)}
		node, known := at[p.Node]
		switch {
		case p.Node == "" && !p.Ending && !p.Gang:
			out.Class = fmt.Sprintf("%d %s", p.Priority, p.Request.Class())
			out.GPUs, out.Demand = b.trial.Wanted(p.Request)
		case p.Node != "" && known:
			held := b.trial.PodPlacement(node, p.UID)
			if len(held) == 0 {
				continue
			}
			out.Placed, out.At = true, defrag.Place{Node: node, GPUs: b.indexes(node, held), Plan: planOf(p.Request,
				held)}
			out.GPUs, out.Demand = len(out.At.GPUs), b.trial.Demand(node, held)
			if !p.Started.IsZero() {
				out.Ran = in.Now.Sub(p.Started)
			}
		default:
			continue
		}
		b.wants = append(b.wants, p.Request)
		b.Pods = append(b.Pods, out)
	}
	return b
}

// planOf is what a pod holds as a plan. Which container holds which share does not matter: a release returns all.
func planOf(w scheduler.PodRequest, held sharing.Placement) []scheduler.Planned {
	name := ""
	if len(w.Containers) > 0 {
		name = w.Containers[0].Container
	}
	return []scheduler.Planned{{Container: name, Placement: held}}
}

// indexes are the GPUs of a placement on their node, ascending.
func (b *ClusterState) indexes(node int, p sharing.Placement) []int {
	var out []int
	for _, f := range p {
		if i := slices.Index(b.refs[node], f.GPU); i >= 0 && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

func (b *ClusterState) place(node int, plan []scheduler.Planned) defrag.Place {
	var all sharing.Placement
	for _, c := range plan {
		all = append(all, c.Placement...)
	}
	return defrag.Place{Node: node, GPUs: b.indexes(node, all), Plan: plan}
}

// Nodes implements defrag.Cluster.
func (b *ClusterState) Nodes() int { return len(b.refs) }

// Places implements defrag.Cluster.
func (b *ClusterState) Places(pod, node int, all bool) []defrag.Place {
	if !all {
		plan, ok := b.trial.Fit(b.wants[pod], node)
		if !ok {
			return nil
		}
		return []defrag.Place{b.place(node, plan)}
	}
	var out []defrag.Place
	for _, plan := range b.trial.All(b.wants[pod], node) {
		out = append(out, b.place(node, plan))
	}
	return out
}

// Open implements defrag.Cluster.
func (b *ClusterState) Open(pod int, p defrag.Place) bool {
	plan, ok := p.Plan.([]scheduler.Planned)
	return ok && b.trial.Open(b.wants[pod], p.Node, plan)
}

// Best implements defrag.Cluster.
func (b *ClusterState) Best(pod int) (defrag.Place, bool) {
	node, plan, ok := b.trial.Best(b.wants[pod])
	if !ok {
		return defrag.Place{}, false
	}
	return b.place(node, plan), true
}

// Take implements defrag.Cluster.
func (b *ClusterState) Take(pod int, p defrag.Place) {
	if plan, ok := p.Plan.([]scheduler.Planned); ok {
		b.trial.Take(b.wants[pod], p.Node, plan)
	}
}

// Release implements defrag.Cluster.
func (b *ClusterState) Release(pod int, p defrag.Place) { b.trial.Release(b.wants[pod], p.Node) }

// Withhold implements defrag.Cluster.
func (b *ClusterState) Withhold(node int, gpus []int, withheld bool) {
	b.trial.Withhold(node, gpus, withheld)
}

// Work implements defrag.Cluster.
func (b *ClusterState) Work() int64 { return b.trial.Work() }

// Make plans moves.
func (b *ClusterState) Make() defrag.Plan { return defrag.Make(&b.Problem, b) }

// Text is a place for people: the node, and its GPUs.
func (b *ClusterState) Text(p defrag.Place) string {
	var gpus []string
	for _, g := range p.GPUs {
		gpus = append(gpus, fmt.Sprint(g))
	}
	return b.Problem.Nodes[p.Node].Name + "/" + strings.Join(gpus, ",")
}
