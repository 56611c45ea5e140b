// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// prepare makes the allocator of the cycle.
func (c *claimCycle) prepare(ctx context.Context, manager fwk.SharedDRAManager, features structured.Features,
	cache *cel.Cache) error {
	state, err := gather(manager.ResourceClaims(), features)
	if err != nil {
		return fmt.Errorf("read allocated claims: %w", err)
	}
	published, err := manager.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil {
		return fmt.Errorf("list ResourceSlices: %w", err)
	}
	c.allocated = allocatedOf(state)
	c.allocator, err = structured.NewAllocator(ctx, features, *state, manager.DeviceClasses(), published, cache)
	if err != nil {
		return fmt.Errorf("make allocator: %w", err)
	}
	return nil
}

// gather reads what all claims have, those of pods that are not bound yet too. It tries again if claims change
// meanwhile.
func gather(claims fwk.ResourceClaimTracker, features structured.Features) (state *structured.AllocatedState,
	err error) {
	for range gatherTries {
		if state, err = gatherOnce(claims, features); err == nil {
			return state, nil
		}
	}
	return nil, err
}

// gatherOnce reads claims as the plugin DynamicResources does.
func gatherOnce(claims fwk.ResourceClaimTracker, features structured.Features) (*structured.AllocatedState, error) {
	if features.ConsumableCapacity {
		state, err := claims.GatherAllocatedState()
		if err == nil && state == nil {
			err = errors.New("no state")
		}
		return state, err
	}
	devices, err := claims.ListAllAllocatedDevices()
	return &structured.AllocatedState{AllocatedDevices: devices,
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection()}, err
}

// allocatedOf are the devices of Kerf that claims have, by node. Shares of one device are one sum.
func allocatedOf(state *structured.AllocatedState) map[string][]dra.Result {
	out := map[string][]dra.Result{}
	add := func(id structured.DeviceID, capacity structured.ConsumedCapacity) {
		if id.Driver.String() != dra.Driver {
			return
		}
		pool := id.Pool.String()
		out[pool] = append(out[pool], dra.Result{Request: id.Device.String(), Pool: pool, Device: id.Device.String(),
			Memory: consumed(capacity, dra.CapacityMemory), Percent: consumed(capacity, dra.CapacityPercent)})
	}
	for id := range state.AllocatedDevices {
		add(id, nil)
	}
	for id, capacity := range state.AggregatedCapacity {
		add(id, capacity)
	}
	return out
}

func consumed(capacity structured.ConsumedCapacity, name resourceapi.QualifiedName) uint64 {
	q := capacity[name]
	if q == nil {
		return 0
	}
	return uint64(max(0, q.Value()))
}

// devices are those of Kerf that the pod's claims would get on a node. rank is how many better alternatives of its
// requests the node cannot give. There are none if the allocation fails.
func (c *claimCycle) devices(ctx context.Context, node *corev1.Node) (out []dra.Result, rank int) {
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	got, err := c.allocator.Allocate(ctx, node, c.claims)
	if err != nil || len(got) != len(c.claims) {
		klog.FromContext(ctx).V(4).Info("node has no score, its claims were not allocated", "node", node.Name,
			"err", err)
		return nil, 0
	}
	for i, claim := range c.claims {
		for _, r := range resourceclaim.Of(&resourceapi.ResourceClaim{Spec: claim.Spec,
			Status: resourceapi.ResourceClaimStatus{Allocation: &got[i]}}).Results {
			r.Request = claim.Name + "/" + r.Request // several claims can have requests of one name
			out = append(out, r)
		}
		rank += rankOf(claim, &got[i])
	}
	return out, rank
}

// rankOf counts the alternatives before those that were allocated, whatever their driver.
func rankOf(claim *resourceapi.ResourceClaim, got *resourceapi.AllocationResult) int {
	chosen := sets.New[string]()
	for _, r := range got.Devices.Results {
		chosen.Insert(r.Request)
	}
	sum := 0
	for _, r := range claim.Spec.Devices.Requests {
		for k, sub := range r.FirstAvailable {
			if chosen.Has(r.Name + "/" + sub.Name) {
				sum += k
			}
		}
	}
	return sum
}
