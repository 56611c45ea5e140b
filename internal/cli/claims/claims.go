// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package claims reads the ResourceClaims and ResourceSlices of a cluster, as far as they are about GPUs of Kerf.
package claims

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// Where the objects of DRA are.
const (
	claimsPath = "/apis/resource.k8s.io/v1/resourceclaims"
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	// namespacePath has the name of a namespace behind it.
	namespacePath = "/apis/resource.k8s.io/v1/namespaces/"
)

// Claim is a ResourceClaim as far as it is about GPUs of Kerf.
type Claim struct {
	Namespace, Name string
	// Wanted are its requests of Kerf's device classes.
	Wanted []dra.Wanted
	// Results are the devices of Kerf that it was allocated, and Allocated is true if it was allocated at all.
	Results   []dra.Result
	Allocated bool
	// Users are the UIDs of the pods that it is reserved for.
	Users []string
	// Reasons are messages of devices that are not ready.
	Reasons []string
}

// List has the claims of a namespace, or of all if it is empty. Errors: sharing.ErrDenied, sharing.ErrNotFound (the
// cluster has no DRA), sharing.ErrUnavailable.
func List(ctx context.Context, api *access.Client, namespace string) ([]Claim, error) {
	path := claimsPath
	if namespace != "" {
		path = namespacePath + url.PathEscape(namespace) + "/resourceclaims"
	}
	var out []Claim
	err := api.List(ctx, path, nil, func(raw json.RawMessage) error {
		var c resourceapi.ResourceClaim
		err := json.Unmarshal(raw, &c)
		out = append(out, claimOf(&c))
		return err
	})
	return out, err
}

// Devices are the devices of Kerf in all ResourceSlices, in the scheduler's order. Errors are those of List.
func Devices(ctx context.Context, api *access.Client) ([]dra.Offered, error) {
	var all []resourceapi.ResourceSlice
	newest := map[string]int64{}
	query := url.Values{"fieldSelector": {"spec.driver=" + dra.Driver}}
	err := api.List(ctx, slicesPath, query, func(raw json.RawMessage) error {
		var s resourceapi.ResourceSlice
		err := json.Unmarshal(raw, &s)
		if s.Spec.Driver == dra.Driver {
			all = append(all, s)
			newest[s.Spec.Pool.Name] = max(newest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
		}
		return err
	})
	var out []dra.Offered
	for _, s := range all {
		if s.Spec.Pool.Generation < newest[s.Spec.Pool.Name] {
			continue
		}
		for _, d := range s.Spec.Devices {
			out = append(out, offered(s.Spec.Pool.Name, d))
		}
	}
	return out, err
}

// Take has the devices know what the claims have of them.
func Take(devices []dra.Offered, all []Claim) {
	at := map[string]*dra.Offered{}
	for i := range devices {
		at[devices[i].Node+"/"+devices[i].Device] = &devices[i]
	}
	for _, c := range all {
		for _, r := range c.Results {
			d := at[r.Pool+"/"+r.Device]
			if d == nil || r.Admin {
				continue
			}
			d.Users++
			d.TakenMemory, d.TakenPercent = d.TakenMemory+sharing.Bytes(r.Memory), d.TakenPercent+r.Percent
			for i := range devices {
				if o := &devices[i]; o.Node == d.Node && o.GPU == d.GPU && o.Kind != d.Kind {
					o.Excluded = true
				}
			}
		}
	}
}

func offered(node string, d resourceapi.Device) dra.Offered {
	out := dra.Offered{Node: node, Device: d.Name, GPU: d.Name, Kind: dra.KindShare}
	if v := d.Attributes["uuid"].StringValue; v != nil {
		out.GPU = *v
	}
	if v := d.Attributes["type"].StringValue; v != nil && *v != dra.KindShare.String() {
		out.Kind = dra.KindWhole
	}
	memory, percent := d.Capacity[dra.CapacityMemory].Value, d.Capacity[dra.CapacityPercent].Value
	out.Memory, out.Percent = sharing.Bytes(max(0, memory.Value())), uint64(max(0, percent.Value()))
	for _, t := range d.Taints {
		if t.Effect != resourceapi.DeviceTaintEffectNone {
			out.Taints = append(out.Taints, strings.TrimSuffix(t.Key+"="+t.Value, "="))
		}
	}
	return out
}

func claimOf(c *resourceapi.ResourceClaim) Claim {
	out := Claim{Namespace: c.Namespace, Name: c.Name, Allocated: c.Status.Allocation != nil}
	devices := c.Spec.Devices
	narrowed := len(devices.Constraints) > 0
	for _, r := range devices.Requests {
		if e := r.Exactly; e != nil {
			out.want(r.Name, e.DeviceClassName, e.Count, e.Capacity, narrowed || len(e.Selectors) > 0)
		}
		for _, s := range r.FirstAvailable {
			out.want(r.Name+"/"+s.Name, s.DeviceClassName, s.Count, s.Capacity, narrowed || len(s.Selectors) > 0)
		}
	}
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			out.Users = append(out.Users, string(r.UID))
		}
	}
	if out.Allocated {
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != dra.Driver {
				continue
			}
			memory, percent := r.ConsumedCapacity[dra.CapacityMemory], r.ConsumedCapacity[dra.CapacityPercent]
			out.Results = append(out.Results, dra.Result{Request: r.Request, Pool: r.Pool, Device: r.Device,
				Memory: uint64(max(0, memory.Value())), Percent: uint64(max(0, percent.Value())),
				Admin: r.AdminAccess != nil && *r.AdminAccess})
		}
	}
	for _, d := range c.Status.Devices {
		for _, condition := range d.Conditions {
			if d.Driver == dra.Driver && condition.Type == "Ready" && condition.Status == "False" {
				out.Reasons = append(out.Reasons, condition.Message)
			}
		}
	}
	return out
}

// want adds a request, if its class is one of Kerf's.
func (c *Claim) want(request, class string, count int64, amounts *resourceapi.CapacityRequirements,
	narrowed bool) {
	w := dra.Wanted{Claim: c.Name, Request: request, Count: int(max(1, count)), Selected: narrowed}
	switch class {
	case "share." + sharing.Domain:
	case "whole." + sharing.Domain:
		w.Kind = dra.KindWhole
	default:
		return
	}
	if amounts != nil && w.Kind == dra.KindShare {
		for name, q := range amounts.Requests {
			switch n := max(0, q.Value()); strings.TrimPrefix(string(name), dra.Driver+"/") {
			case dra.CapacityMemory:
				w.Memory = (sharing.Bytes(n) + sharing.GiB - 1) / sharing.GiB * sharing.GiB
			case dra.CapacityPercent:
				w.Percent = uint64(n)
			}
		}
	}
	c.Wanted = append(c.Wanted, w)
}
