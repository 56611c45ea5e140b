// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Claim is a ResourceClaim that the scheduler has allocated.
type Claim struct {
	UID, Namespace, Name string
	// Pods are the UIDs of the pods that the claim is reserved for.
	Pods []string
	// Results are the devices of this driver that were allocated.
	Results []Result
	// Configs are the opaque parameters for this driver, of the claim and of its classes.
	Configs []Config
}

// ClaimRef names a claim that a pod references. Its UID is one of UIDs, or it is another claim of that name.
type ClaimRef struct {
	Namespace, Name string
	UIDs            []string
}

// Result is one device that the scheduler allocated.
type Result struct {
	// Request is the name of the request, with "/" and the name of the subrequest if it has one.
	Request, Pool, Device, ShareID string
	// Memory and Percent are what the allocation takes of a share.
	Memory  uint64
	Percent uint64
	// StatesMemory is true if the claim requests an amount of memory.
	StatesMemory bool
	// Admin is true for admin access: the container sees the GPU, without a grant.
	Admin bool
}

// Config are opaque parameters.
type Config struct {
	// Requests are those that the config is for; none means all.
	Requests   []string
	Parameters []byte
	FromClass  bool
}

// String returns "namespace/name".
func (c Claim) String() string { return c.Namespace + "/" + c.Name }

// main is the request without its subrequest.
func (r Result) main() string {
	name, _, _ := strings.Cut(r.Request, "/")
	return name
}

// ResourceRequest is what the result's request admits a container with.
func (r Result) ResourceRequest(claimUID string) sharing.ResourceRequest {
	return sharing.ClaimRequest(claimUID, r.main())
}

// AdminGPUs are the GPUs that the result gives admin access to; nil for other results.
func (r Result) AdminGPUs(gpus []sharing.GPUID) []sharing.GPUID {
	at, known := TargetOf(r.Device, gpus)
	switch {
	case r.Admin && r.Device == MonitorDevice:
		return slices.Clone(gpus)
	case r.Admin && known:
		return []sharing.GPUID{at.GPU}
	}
	return nil
}

// requests are the names of the claim's requests that give a grant, sorted, without subrequests.
func (c Claim) requests() []string {
	var out []string
	for _, r := range c.Results {
		if !r.Admin && !slices.Contains(out, r.main()) {
			out = append(out, r.main())
		}
	}
	slices.Sort(out)
	return out
}

// ResourceRequests are what each request of the claim admits a container with.
func (c Claim) ResourceRequests() []sharing.ResourceRequest {
	var out []sharing.ResourceRequest
	for _, name := range c.requests() {
		out = append(out, sharing.ClaimRequest(c.UID, name))
	}
	sharing.SortResourceRequests(out)
	return out
}

// Check finds what makes a claim impossible on this node for every pod. Errors wrap sharing.ErrInvalid, or
// sharing.ErrNotFound for a device that the node does not have.
func (c Claim) Check(gpus []sharing.GPUID) error {
	var errs []error
	for _, r := range c.Results {
		at, known := TargetOf(r.Device, gpus)
		var err error
		switch {
		case r.Device == MonitorDevice && !r.Admin:
			err = sharing.Invalid("adminAccess", "false", "write adminAccess: true", "is needed for the device %q",
				MonitorDevice)
		case r.Device == MonitorDevice:
		case !known:
			err = fmt.Errorf("this node has no such GPU: %w", sharing.ErrNotFound)
		case r.Admin, at.Kind != KindShare:
		case !r.StatesMemory:
			err = sharing.Invalid("capacity.requests", "", "state memory, such as memory: 10Gi", "states no memory")
		case r.Memory == 0 || r.Memory%uint64(sharing.GiB) != 0 || r.Memory > uint64(maxMemory):
			err = sharing.Invalid("capacity.requests.memory", sharing.Bytes(r.Memory).String(),
				"write whole GiB, such as 10Gi", "is out of range")
		case r.Percent > uint64(sharing.FullGPU):
			err = sharing.Invalid("capacity.requests.percent", fmt.Sprint(r.Percent), "write at most 100",
				"is out of range")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("request %q, device %q: %w", r.Request, r.Device, err))
		}
	}
	for _, name := range c.requests() {
		if _, err := c.parametersOf(name); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("claim %s: %w", c, errors.Join(errs...))
	}
	return nil
}
