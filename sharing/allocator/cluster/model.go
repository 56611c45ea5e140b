// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster decides which node and which GPUs of a cluster answer a request.
//
// It promises that equal calls in an equal order give equal placements, and that no GPU, core or byte is given twice.
// It counts in integers. It does not promise the best placement that exists: a Policy says what good means. It knows no
// API server, and is not safe for concurrent use.
package cluster

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// Milli is a thousandth: of a core for CPU, of a GPU for shares.
type Milli int64

// WholeGPU is one GPU in thousandths.
const WholeGPU Milli = 1000

// Node is one machine: what it has free, and nothing of who holds the rest.
type Node struct {
	Name string
	// CPU is what is free, in thousandths of a core.
	CPU Milli
	// Memory is what is free of the machine's own memory.
	Memory sharing.Bytes
	// Model is the one model of all the node's GPUs; empty without GPUs.
	Model string
	// GPUs is what is free on each GPU, 0 to WholeGPU.
	GPUs []Milli
	// GPUMemory is the usable memory of each GPU; 0 when it is not known, and then no request by memory fits.
	GPUMemory sharing.Bytes
	// Overcommit is how much more than each GPU has is given in shares: of WholeGPU, a share takes its part of that. It
	// counts for nothing where the GPUs are in MIG mode.
	Overcommit sharing.Overcommit
	// Table is the MIG geometry of each GPU, if they are in MIG mode: a share then takes the smallest instance that
	// fits. Such GPUs are empty at first. It is nil if they are not in MIG mode.
	Table *mig.Table
	// Topology has a place for each GPU; empty when it is not known.
	Topology []Place
	// Level is how strongly the node holds shares to their size.
	Level sharing.Level
	// AllowedModes is how the GPUs are granted: whole, in shares, or both. It has no effect in MIG mode.
	AllowedModes Modes
	// Cordoned nodes take no new requests.
	Cordoned bool

	state
}

// state is what is computed of a node, and what a Cluster keeps of it.
type state struct {
	// version counts the changes of the node, from 1; 0 for a node of no cluster.
	version uint64
	// geometry is made from Table; instances are those of each GPU.
	geometry  *geometry
	instances []mig.Occupancy
	// now is what Kerf's score begins with, whatever the shape.
	now worth
	// id tells the nodes of a cluster apart; cpu and memory are what the node had when it came; kinds counts what it
	// holds.
	id     uint64
	cpu    Milli
	memory sharing.Bytes
	kinds  [kinds]int
	// aside is what is free on withheld GPUs, which have 0 in GPUs; inUse for the others. Nil when none was ever
	// withheld.
	aside []Milli
}

// Free is what is free on all GPUs together.
func (n *Node) Free() Milli {
	sum := Milli(0)
	for _, left := range n.GPUs {
		sum += left
	}
	return sum
}

// Shape is what placements of a request are scored by. Requests of one shape share their scores.
type Shape struct {
	// CPU in thousandths of a core.
	CPU Milli
	// GPUs is how many GPUs are asked for; 0 asks for none.
	GPUs int
	// Share is taken from each of them, 1 to WholeGPU, or 0 with GPUMemory.
	Share Milli
	// GPUMemory is asked for on each of them; where it is a greater part of the GPU than Share, that part is taken.
	GPUMemory sharing.Bytes
	// Profile asks for a MIG instance, in the words that mig.ParseWish takes, in place of a share; GPUs is then 1.
	Profile string
	// Models are the GPU models allowed, joined by "|"; empty allows all. A name with *, ?, [ or ! in it is a glob, as
	// sharing.MatchModels takes them, and then all are.
	Models string
	// Level is the least enforcement level; LevelUnknown asks for none. A whole GPU has the highest.
	Level sharing.Level
}

// whole reports whether GPUs are asked for as a whole, and not a part that is as large as one.
func (s Shape) whole() bool { return s.Share >= WholeGPU && s.GPUMemory == 0 }

// Demand is the share of all GPUs together.
func (s Shape) Demand() Milli { return Milli(s.GPUs) * s.Share }

// Request is what a pod requests.
type Request struct {
	Shape
	// Memory of the machine, not of the GPU.
	Memory sharing.Bytes
}

// Placement is an answer: the node, and the GPUs on it in ascending order.
type Placement struct {
	Node int
	GPUs []int
	// Starts are where the MIG instance on each of them begins, in the placement units of the node's Table; nil without
	// MIG.
	Starts []int
}

// Reason is why a node cannot answer a request; Fits when it can.
type Reason int

// The reasons, in the order in which they are looked for.
const (
	Fits Reason = iota
	IsCordoned
	LacksCPU
	LacksMemory
	WrongModel
	LacksProfile
	// OtherMode: its GPUs are given whole alone, or in shares alone.
	OtherMode
	LacksLevel
	LacksGPUs
	LacksCapacity
	// Withheld: with the GPUs that take nothing new it would fit.
	Withheld
)

// String says the reason in words.
func (r Reason) String() string {
	switch r {
	case Fits:
		return "fits"
	case LacksCPU:
		return "too little CPU"
	case LacksMemory:
		return "too little memory"
	case WrongModel:
		return "wrong GPU model"
	case LacksProfile:
		return "no such MIG profile"
	case IsCordoned:
		return "takes nothing new"
	case OtherMode:
		return "does not give GPUs in this mode"
	case LacksLevel:
		return "enforcement level too low"
	case Withheld:
		return "its GPUs take nothing new"
	case LacksGPUs:
		return "too few GPUs"
	case LacksCapacity:
		return "too little free on any one GPU"
	}
	return fmt.Sprintf("reason %d", int(r))
}

// Evaluate says why the node cannot answer the request, or Fits. What no end of a request changes is said first.
func Evaluate(n *Node, r Request) Reason {
	if n.Cordoned {
		return IsCordoned
	}
	s := n.resolve(r.Shape)
	why := never(n, s)
	switch {
	case why != Fits:
		return why
	case n.CPU < r.CPU:
		return LacksCPU
	case n.Memory < r.Memory:
		return LacksMemory
	}
	return room(n, s)
}

// judgeGPUs is Evaluate of the GPUs alone.
func judgeGPUs(n *Node, s Shape) Reason {
	s = n.resolve(s)
	if why := never(n, s); why != Fits {
		return why
	}
	return room(n, s)
}

// never says why the node's GPUs do not answer the resolved shape even when all are free, but for their size; or Fits.
func never(n *Node, s Shape) Reason {
	switch {
	case s.GPUs == 0:
		return Fits
	case !allows(s.Models, n.Model):
		return WrongModel
	case s.Profile != "" && s.Share == tooMuch:
		return LacksProfile
	case n.Table == nil && n.AllowedModes != AllModes && (n.AllowedModes == WholeAlone) != s.whole():
		return OtherMode
	case s.Share < WholeGPU && !n.level().AtLeast(s.Level):
		return LacksLevel
	case len(n.GPUs) < s.GPUs:
		return LacksGPUs
	}
	return Fits
}

// room says whether enough GPUs have what the resolved shape takes.
func room(n *Node, s Shape) Reason {
	if s.GPUs == 0 {
		return Fits
	}
	fit := n.count(n.GPUs, s)
	switch {
	case fit >= s.GPUs:
		return Fits
	case fit+n.count(n.aside, s) >= s.GPUs:
		return Withheld
	}
	return LacksCapacity
}

// allows looks for one model in a list joined by "|", without making garbage of the list unless it has globs.
func allows(models, model string) bool {
	if models == "" {
		return true
	}
	if strings.ContainsAny(models, "*?[!") {
		return model != "" && sharing.MatchModels(strings.Split(models, "|"), model)
	}
	for len(models) > 0 {
		end := 0
		for end < len(models) && models[end] != '|' {
			end++
		}
		if models[:end] == model {
			return true
		}
		models = models[min(end+1, len(models)):]
	}
	return false
}

func count(gpus []Milli, share Milli) int {
	n := 0
	for _, left := range gpus {
		if left >= share {
			n++
		}
	}
	return n
}
