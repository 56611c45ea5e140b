// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package defrag plans which pods to move so that pending pods fit.
//
// A plan has steps. Each step has the least cost for each GPU that pending pods get. With at most 8 GPUs and 12 pods a
// step is optimal, and else the cheapest that a search of the most promising nodes finds. The moves of a step can be
// carried out in their order: each destination is free when its turn comes.
//
// Whether a pod fits is decided by a Cluster. The code has no I/O, clock or goroutine.
package defrag

import "time"

// Place is where a pod is or could be.
type Place struct {
	Node int
	// GPUs are the indexes of its GPUs on the node, ascending.
	GPUs []int
	// Plan is for the Cluster that gave the place.
	Plan any
}

// Cluster is the nodes while a plan is made. Pods have the numbers of the Problem.
type Cluster interface {
	// Nodes is how many nodes there are.
	Nodes() int
	// Places are those that a pod can take on a node now, the scheduler's choice first. The others may be left out
	// if all is false. One of several equal places is enough.
	Places(pod, node int, all bool) []Place
	// Open reports whether a pod can take exactly this place now.
	Open(pod int, p Place) bool
	// Best is the place in the cluster that the scheduler would choose.
	Best(pod int) (Place, bool)
	// Take and Release change what is free. The place of a release is that of the pod.
	Take(pod int, p Place)
	Release(pod int, p Place)
	// Withhold says whether GPUs of a node take no new pod.
	Withhold(node int, gpus []int, withheld bool)
	// Work measures what these functions have done since the start, in units of about 0.1 µs. 0 sets no bound.
	Work() int64
}

// Pod is a pod with GPUs, or one that waits for them.
type Pod struct {
	UID, Namespace, Name string
	// Placed is true for a pod that is at At.
	Placed bool
	At     Place
	// Class is equal for pending pods with equal requests; empty for none.
	Class    string
	Priority int32
	// GPUs is how many GPUs it asks for, Demand what it takes of all of them, in thousandths of a GPU.
	GPUs   int
	Demand int64
	// Ran is the running time that a move loses.
	Ran time.Duration
	// Budgets are the disruption budgets that cover the pod: indexes in the budgets of the Problem.
	Budgets []int
	// StayReason says why the pod must stay; empty if it may be moved.
	StayReason string
}

// String returns "namespace/name".
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// Node is a node with GPUs.
type Node struct {
	Name, Pool string
	// GPUs are the names of its GPUs.
	GPUs []string
}

// Problem is the input of a plan, in addition to the Cluster.
type Problem struct {
	Nodes []Node
	Pods  []Pod
	// Budgets are how many disruptions each disruption budget allows now.
	Budgets []int
	Limits  Limits
}

// Limits bound a plan. A zero value stands for the default.
type Limits struct {
	// Moves is the most moves of a plan.
	Moves int
	// CostPerGPU is the highest cost for one GPU that pending pods get.
	CostPerGPU int64
	// Single makes each step free GPUs for one pending pod.
	Single bool
}

// DefaultMoves is the most moves of a plan by default.
const DefaultMoves = 8

// The cost of a move, in seconds.
const (
	// restartCost is what a restart costs a pod that has just begun to run.
	restartCost = 60
	// mostPriorityCost bounds the cost of a high priority.
	mostPriorityCost = 86_400
)

// Cost is the cost of a move in seconds: the lost running time and a minute for the restart. A disruption budget
// doubles it. Each unit of a positive priority adds a second, at most a day.
func (p *Pod) Cost() int64 {
	cost := restartCost + int64(max(0, p.Ran)/time.Second)
	if len(p.Budgets) > 0 {
		cost *= 2
	}
	return cost + int64(min(max(0, p.Priority), mostPriorityCost))
}

// Move is a pod that leaves one place for another.
type Move struct {
	Pod      int
	From, To Place
	Cost     int64
}

// Fit is a pending pod and the place that it gets.
type Fit struct {
	Pod int
	To  Place
}

// GPU is a GPU of a node.
type GPU struct{ Node, GPU int }

// Step is moves that let pending pods fit.
type Step struct {
	// Moves are in the order in which they can be carried out.
	Moves []Move
	Fits  []Fit
	// Freed is what the pending pods get, in thousandths of a GPU.
	Freed int64
	// Empty are the GPUs that no pod uses after the moves, before the pending pods come.
	Empty []GPU
	Cost  int64
}

// CostPerGPU is the cost for each GPU that pending pods get.
func (s *Step) CostPerGPU() float64 { return 1000 * float64(s.Cost) / float64(max(1, s.Freed)) }

// cheaper reports whether a cost for an amount is less than another one.
func cheaper(cost, freed, otherCost, otherFreed int64) bool { return cost*otherFreed < otherCost*freed }

// Plan is the steps, and what becomes of the pending pods.
type Plan struct {
	Steps []Step
	// Fit are the pending pods that fit without a move.
	Fit []Fit
	// Left are the pending pods that still do not fit.
	Left []int
	// Partial is true if the search ended at its bound: other moves may help, and pods of Left may fit.
	Partial bool
}

// Moves is the number of moves of all steps.
func (p *Plan) Moves() int {
	n := 0
	for _, s := range p.Steps {
		n += len(s.Moves)
	}
	return n
}
