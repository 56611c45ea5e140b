// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kerf-gpu/kerf/sharing/dra"
)

// AllocationOf is the allocation of a claim with devices of Kerf that have Kerf's binding condition. It has no devices
// if the claim has no such allocation.
func AllocationOf(c *resourceapi.ResourceClaim) dra.Allocation {
	out := dra.Allocation{UID: string(c.UID), Namespace: c.Namespace, Name: c.Name}
	if c.Status.Allocation == nil {
		return out
	}
	if at := c.Status.Allocation.AllocationTimestamp; at != nil {
		out.At = at.UTC().Format(time.RFC3339)
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == dra.Driver && slices.Contains(r.BindingConditions, dra.ConditionCreated) {
			out.Node = r.Pool // Each node has one pool of this name.
			out.Devices = append(out.Devices, r.Device)
		}
	}
	slices.Sort(out.Devices)
	return out
}

// OutcomeOf is what the status of a claim says of an allocation.
func OutcomeOf(c *resourceapi.ResourceClaim, a dra.Allocation) dra.Outcome {
	if AllocationOf(c).Key() != a.Key() {
		return dra.OutcomeOver
	}
	ready := 0
	for _, d := range c.Status.Devices {
		switch {
		case d.Driver != dra.Driver || d.Pool != a.Node || !slices.Contains(a.Devices, d.Device):
		case meta.IsStatusConditionTrue(d.Conditions, dra.ConditionFailed):
			return dra.OutcomeOver
		case meta.IsStatusConditionTrue(d.Conditions, dra.ConditionCreated):
			ready++
		}
	}
	if ready == len(a.Devices) {
		return dra.OutcomeReady
	}
	return dra.OutcomeNone
}
