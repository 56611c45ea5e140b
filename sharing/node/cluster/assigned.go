// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// assignedNode is the node runtime as the creator of assigned claims needs it.
type assignedNode struct{ f *claimFront }

// Create implements assigned.Node, as do the others.
func (n assignedNode) Create(ctx context.Context, a dra.Allocation, device string) error {
	gpu, in, ok := dra.InstanceOf(device, n.f.GPUs())
	if !ok {
		return fmt.Errorf("%s: this node has no MIG device %q: %w", a, device, sharing.ErrNotFound)
	}
	return n.instances().Create(ctx, instances.Hold{Key: a.Key(), ClaimUID: a.UID, Who: a.String(), GPU: gpu}, in)
}

func (n assignedNode) Release(a dra.Allocation) { n.instances().Release(a.Key()) }

func (n assignedNode) GPUOf(device string) (sharing.GPUID, bool) {
	gpu, _, ok := dra.InstanceOf(device, n.f.GPUs())
	return gpu, ok
}

func (n assignedNode) Announce() { n.f.k.Runtime.Announce() }

func (n assignedNode) instances() node.ClaimInstances {
	return node.ClaimInstances{Runtime: n.f.k.Runtime}
}

// assignedTo are the claims that the spec of a GPUNode assigns to its node.
func assignedTo(node string, s gpunode.Spec) []dra.Allocation {
	var out []dra.Allocation
	for _, c := range s.AssignedClaims {
		out = append(out, dra.Allocation{UID: c.UID, Namespace: c.Namespace, Name: c.Name, At: c.AllocatedAt,
			Node:    node,
			Devices: slices.Clone(c.Devices)})
	}
	return out
}

// unavailable marks the GPUs that could not give a MIG instance to an assigned claim.
func unavailable(gpus []status.BookedGPU, tainted func(sharing.GPUID) bool) []status.BookedGPU {
	out := slices.Clone(gpus)
	for i := range out {
		if tainted(out[i].GPU.UUID) {
			out[i].MIG.Error = cmp.Or(out[i].MIG.Error, "it could not give a MIG instance to a ResourceClaim")
		}
	}
	return out
}
