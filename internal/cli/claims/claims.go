// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package claims reads the ResourceClaims and ResourceSlices of a cluster, as far as they are about GPUs of Kerf.
package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
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
	all = slices.DeleteFunc(all, func(s resourceapi.ResourceSlice) bool {
		return s.Spec.Pool.Generation < newest[s.Spec.Pool.Name]
	})
	sets := map[string][]dra.Counter{}
	for _, s := range all {
		for _, set := range s.Spec.SharedCounters {
			sets[s.Spec.Pool.Name+"/"+set.Name] = countersOf(set.Counters)
		}
	}
	var out []dra.Offered
	for _, s := range all {
		for _, d := range s.Spec.Devices {
			if one, known := offered(s.Spec.Pool.Name, d, sets); known {
				out = append(out, one)
			}
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
		}
	}
}

// offered is a device of a pool with the counter sets of the pool; false for one of a kind that is not known.
func offered(node string, d resourceapi.Device, sets map[string][]dra.Counter) (dra.Offered, bool) {
	out := dra.Offered{Node: node, Device: d.Name}
	text := func(name string) string {
		if v := d.Attributes[resourceapi.QualifiedName(name)].StringValue; v != nil {
			return *v
		}
		return ""
	}
	out.GPU, out.Profile = cmp.Or(text(dra.AttributeUUID), d.Name), text(dra.AttributeProfile)
	var known bool
	if out.Kind, known = dra.ParseKind(text(dra.AttributeType)); !known {
		return out, false
	}
	for _, c := range d.ConsumesCounters {
		out.Consumes = append(out.Consumes, countersOf(c.Counters)...)
		out.Counters = append(out.Counters, sets[node+"/"+c.CounterSet]...)
	}
	memory, percent := d.Capacity[dra.CapacityMemory].Value, d.Capacity[dra.CapacityPercent].Value
	out.Memory, out.Percent = sharing.Bytes(max(0, memory.Value())), uint64(max(0, percent.Value()))
	for _, t := range d.Taints {
		if t.Effect != resourceapi.DeviceTaintEffectNone {
			out.Taints = append(out.Taints, strings.TrimSuffix(t.Key+"="+t.Value, "="))
		}
	}
	return out, true
}

func countersOf(counters map[string]resourceapi.Counter) []dra.Counter {
	var out []dra.Counter
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		value := counters[name].Value
		out = append(out, dra.Counter{Name: name, Value: uint64(max(0, value.Value()))})
	}
	return out
}

func claimOf(c *resourceapi.ResourceClaim) Claim {
	read := resourceclaim.Of(c)
	out := Claim{Namespace: c.Namespace, Name: c.Name, Allocated: c.Status.Allocation != nil,
		Wanted: resourceclaim.Wanted(c), Users: read.Pods, Results: read.Results}
	for _, d := range c.Status.Devices {
		for _, condition := range d.Conditions {
			if d.Driver == dra.Driver && condition.Type == dra.ConditionReady &&
				condition.Status == metav1.ConditionFalse {
				out.Reasons = append(out.Reasons, condition.Message)
			}
		}
	}
	return out
}
