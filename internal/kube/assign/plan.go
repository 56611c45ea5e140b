// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// assigned are allocations as the spec of a GPUNode has them.
func assigned(all []dra.Allocation) []gpunode.AssignedClaim {
	out := []gpunode.AssignedClaim{}
	for _, a := range all {
		out = append(out, gpunode.AssignedClaim{UID: a.UID, Namespace: a.Namespace, Name: a.Name, AllocatedAt: a.At,
			Devices: slices.Clone(a.Devices)})
	}
	return out
}

// same reports whether two specs assign the same claims.
func same(a, b []gpunode.AssignedClaim) bool {
	return slices.EqualFunc(a, b, func(x, y gpunode.AssignedClaim) bool {
		return x.UID == y.UID && x.Namespace == y.Namespace && x.Name == y.Name && x.AllocatedAt == y.AllocatedAt &&
			slices.Equal(x.Devices, y.Devices)
	})
}

// patchOf is a merge patch of only the assigned claims.
func patchOf(claims []gpunode.AssignedClaim) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"assignedClaims": claims}})
	if err != nil {
		return nil, fmt.Errorf("encode assigned claims: %w", err)
	}
	return patch, nil
}
