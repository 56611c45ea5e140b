// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

import "slices"

// Types of conditions.
const (
	// ConditionReady: containers with a GPU can start.
	ConditionReady = "Ready"
	// ConditionDriverReady: the NVIDIA driver answers.
	ConditionDriverReady = "DriverReady"
	// ConditionConfigApplied: the newest config is applied on every GPU.
	ConditionConfigApplied = "ConfigApplied"
)

// ReasonReleased is the reason of DriverReady while the driver is drained and no process of Kerf uses it.
const ReasonReleased = "Released"

// Values of Condition.Status.
const (
	True  = "True"
	False = "False"
)

// Condition is a condition as in other objects of Kubernetes.
type Condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	// Reason is in CamelCase; Message is for people, with a line for each reason.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// LastTransitionTime is when Status changed (RFC 3339). ObservedGeneration is as in Status.
	LastTransitionTime string `json:"lastTransitionTime"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

// Condition is the condition of that type; the zero value if there is none.
func (s *Status) Condition(kind string) Condition {
	i := slices.IndexFunc(s.Conditions, func(c Condition) bool { return c.Type == kind })
	if i < 0 {
		return Condition{}
	}
	return s.Conditions[i]
}

// Ready is true if containers with a GPU can start.
func (s *Status) Ready() bool { return s.Condition(ConditionReady).Status == True }

// DriverReleased is true if the driver is drained, and neither agent nor monitor uses it.
func (s *Status) DriverReleased() bool {
	return s.Condition(ConditionDriverReady).Reason == ReasonReleased
}

// Observe completes the conditions of a new status. A condition whose status did not change keeps its time. Another
// one gets the time now (RFC 3339). The generation is that of the spec that the agent has applied.
func (s *Status) Observe(generation int64, before []Condition, now string) {
	s.ObservedGeneration = generation
	was := Status{Conditions: before}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = generation, now
		if old := was.Condition(c.Type); old.Status == c.Status && old.LastTransitionTime != "" {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
}
