// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Health is the policy for the processes on a GPU that is unhealthy or lost, and for the messages to the cluster.
type Health struct {
	OnFault OnFault `yaml:"onFault"`
	// Grace is the time from the word to end until what runs is made to; 0 means DefaultGrace.
	Grace time.Duration `yaml:"gracePeriod"`
	// Node is what the node shows of GPUs that are not healthy.
	Node NodeMark `yaml:"nodeSignal"`
	// TerminationTaints are the keys of taints which say that the node will be taken away soon. While it has one,
	// nothing new is granted, and the pods that have a GPU get an event.
	TerminationTaints []string `yaml:"terminationTaints"`
}

// DefaultGrace is the grace of a pool that says none, and MaxGrace the longest.
const (
	DefaultGrace = 30 * time.Second
	MaxGrace     = 24 * time.Hour
)

// OnFault is what happens to what runs on a faulty GPU.
type OnFault uint8

// The policies for faults.
const (
	// FaultWarn: pods get an event, and the status shows it (the default).
	FaultWarn OnFault = iota
	// FaultEvict: its processes get SIGTERM, and after the grace its pod is evicted with all its containers; processes
	// of no pod are killed then.
	FaultEvict
)

// String returns "warn" or "evict".
func (o OnFault) String() string {
	switch o {
	case FaultEvict:
		return "evict"
	case FaultWarn:
	}
	return "warn"
}

// ParseOnFault reads "warn" or "evict"; field names the input for the error, a *sharing.FieldError.
func ParseOnFault(field, s string) (OnFault, error) {
	for _, o := range []OnFault{FaultWarn, FaultEvict} {
		if o.String() == s {
			return o, nil
		}
	}
	return FaultWarn, sharing.Invalid(field, s, "write warn or evict", "is not a policy for faults")
}

// NodeMark is what the node's own object shows of GPUs that are not healthy.
type NodeMark uint8

// The marks.
const (
	// NodeMarkNone: nothing, the GPUNode says all (the default).
	NodeMarkNone NodeMark = iota
	// NodeMarkCondition: a condition of the node.
	NodeMarkCondition
	// NodeMarkTaint: the condition, and a taint that keeps new pods away that do not tolerate it, while a GPU is
	// unhealthy or lost.
	NodeMarkTaint
)

// String returns "none", "condition" or "taint".
func (m NodeMark) String() string {
	switch m {
	case NodeMarkCondition:
		return "condition"
	case NodeMarkTaint:
		return "taint"
	case NodeMarkNone:
	}
	return "none"
}

// ParseNodeMark reads "none", "condition" or "taint"; field names the input for the error, a *sharing.FieldError.
func ParseNodeMark(field, s string) (NodeMark, error) {
	for _, m := range []NodeMark{NodeMarkNone, NodeMarkCondition, NodeMarkTaint} {
		if m.String() == s {
			return m, nil
		}
	}
	return NodeMarkNone, sharing.Invalid(field, s, "write none, condition or taint", "is not a mark for nodes")
}

// GraceOf is the grace, and DefaultGrace where none is said.
func (h Health) GraceOf() time.Duration {
	if h.Grace == 0 {
		return DefaultGrace
	}
	return h.Grace
}

func parseGrace(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > MaxGrace {
		return 0, sharing.Invalid(field, s, "write a time with a unit up to "+MaxGrace.String()+", such as 30s",
			"is not a grace")
	}
	return d, nil
}

func (h *Health) fields() fields {
	return named(h, fields{
		word(&h.OnFault, ParseOnFault, "What happens to programs on a faulty GPU. `warn` sends an event and shows "+
			"it in status. `evict` also sends SIGTERM, and evicts the pod after the grace period.", FaultWarn,
			FaultEvict).def("warn").rename("onFault", "report=warn"),
		span(&h.Grace, parseGrace, 1, MaxGrace,
			"The time between SIGTERM and eviction. It needs `onFault: evict`.").def("30s").rename("grace"),
		word(&h.Node, ParseNodeMark,
			"What the Node shows of unhealthy GPUs: nothing, the condition kerf.dev/GPUsHealthy, or also a taint.",
			NodeMarkNone, NodeMarkCondition, NodeMarkTaint).def("none").rename("node"),
		texts(&h.TerminationTaints, "Taints of a node that will go away soon. While the node has one, Kerf makes no "+
			"new grants there, and GPU pods get an event.").rename("spotTaints"),
	})
}

func (c *checker) health(path string, h Health) {
	if h.OnFault > FaultEvict {
		c.bad(path+".onFault", "", "use an OnFault of this package", "is not a policy for faults")
	}
	if h.Node > NodeMarkTaint {
		c.bad(path+".nodeSignal", "", "use a NodeMark of this package", "is not a mark for nodes")
	}
	switch {
	case h.Grace < 0 || h.Grace > MaxGrace:
		c.bad(path+".gracePeriod", h.Grace.String(), "write a time up to "+MaxGrace.String(), "is not a grace")
	case h.Grace != 0 && h.OnFault == FaultWarn:
		c.bad(path+".gracePeriod", h.Grace.String(), "write onFault: evict too, or leave it out",
			"is for onFault: evict")
	}
	for i, key := range h.TerminationTaints {
		if !labelKey(key) {
			c.bad(at(path+".terminationTaints", i), key,
				"write a taint's key, such as aws-node-termination-handler/spot-itn", "is no key that a taint has")
		}
		if slices.Index(h.TerminationTaints, key) < i {
			c.bad(at(path+".terminationTaints", i), key, "name it once", "is named twice")
		}
	}
}
