// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// The binding conditions of a MIG instance, in the status of its claim. kube-scheduler binds the pod once
// ConditionCreated is true. Once ConditionFailed is true, it deallocates the claim and tries other devices.
const (
	ConditionCreated = Driver + "/ready"
	ConditionFailed  = Driver + "/failed"
)

// The reasons of these conditions.
const (
	ReasonCreated    = "InstanceCreated"
	ReasonNotCreated = "InstanceNotCreated"
)

// Allocation is one allocation of a claim, of devices with binding conditions.
type Allocation struct {
	UID, Namespace, Name string
	// At is when the scheduler allocated the claim (RFC 3339). Node is the node of the devices.
	At, Node string
	// Devices are the names of the devices with binding conditions, sorted.
	Devices []string
}

// String returns "claim namespace/name".
func (a Allocation) String() string { return "claim " + a.Namespace + "/" + a.Name }

// Key differs for each allocation.
func (a Allocation) Key() string {
	return strings.Join(append([]string{a.UID, a.At, a.Node}, a.Devices...), " ")
}

// Outcome is what the status of a claim says of an allocation.
type Outcome uint8

const (
	// OutcomeNone means nothing yet.
	OutcomeNone Outcome = iota
	// OutcomeReady means that the instances exist, so that the pod may be bound.
	OutcomeReady
	// OutcomeOver means that an instance could not be created, or the claim is not allocated so any more.
	OutcomeOver
)

// Assign are the allocations that a node has to create MIG instances for, in the order of namespace, name and UID.
func Assign(node string, all []Allocation) []Allocation {
	var out []Allocation
	for _, a := range all {
		if a.Node == node && len(a.Devices) > 0 {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Allocation) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// InstanceOf is the GPU and the MIG instance of a device; false for a device of another kind or GPU.
func InstanceOf(device string, gpus []sharing.GPUID) (sharing.GPUID, sharing.InstanceRef, bool) {
	at, ok := TargetOf(device, gpus)
	return at.GPU, at.Instance, ok && at.Kind == KindMIG
}
