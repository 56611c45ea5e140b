// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaim converts ResourceClaims of resource.k8s.io, for the DRA plugin and for the command line.
package resourceclaim

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kerf-gpu/kerf/sharing/dra"
)

// Of is what Kerf reads of an allocated claim. Devices and parameters of other drivers are left out.
func Of(c *resourceapi.ResourceClaim) dra.Claim {
	out := dra.Claim{UID: string(c.UID), Namespace: c.Namespace, Name: c.Name}
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			out.Pods = append(out.Pods, string(r.UID))
		}
	}
	if c.Status.Allocation == nil {
		return out
	}
	devices := c.Status.Allocation.Devices
	for _, r := range devices.Results {
		if r.Driver != dra.Driver {
			continue
		}
		one := dra.Result{Request: r.Request, Pool: r.Pool, Device: r.Device,
			Memory: amount(r, dra.CapacityMemory), Percent: amount(r, dra.CapacityPercent),
			StatesMemory: statesMemory(c, r.Request), Admin: r.AdminAccess != nil && *r.AdminAccess}
		if r.ShareID != nil {
			one.ShareID = string(*r.ShareID)
		}
		out.Results = append(out.Results, one)
	}
	for _, conf := range devices.Config {
		if conf.Opaque != nil && conf.Opaque.Driver == dra.Driver {
			out.Configs = append(out.Configs, dra.Config{Requests: conf.Requests,
				Parameters: conf.Opaque.Parameters.Raw,
				FromClass:  conf.Source == resourceapi.AllocationConfigSourceClass})
		}
	}
	return out
}

// amount is what an allocation takes of a capacity. What is no number above 0 becomes 0, which is then rejected.
func amount(r resourceapi.DeviceRequestAllocationResult, name string) uint64 {
	q := r.ConsumedCapacity[resourceapi.QualifiedName(name)]
	v := q.Value()
	if v < 0 {
		return 0
	}
	return uint64(v)
}

// statesMemory reports whether the claim's request, or its subrequest, has an amount of memory.
func statesMemory(c *resourceapi.ResourceClaim, request string) bool {
	has := func(r *resourceapi.CapacityRequirements) bool {
		if r == nil {
			return false
		}
		_, short := r.Requests[dra.CapacityMemory]
		_, full := r.Requests[dra.Driver+"/"+dra.CapacityMemory]
		return short || full
	}
	for _, r := range c.Spec.Devices.Requests {
		if r.Exactly != nil && r.Name == request {
			return has(r.Exactly.Capacity)
		}
		for _, sub := range r.FirstAvailable {
			if r.Name+"/"+sub.Name == request {
				return has(sub.Capacity)
			}
		}
	}
	return false
}
