// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// AnyGI in an Unaccounted means that it is not known which instance is meant, or that all of the GPU is.
const AnyGI = -1

// Unaccounted is a container that runs, has the GPU's device file, and belongs to no claim.
type Unaccounted struct {
	// GI is the driver's id of the GPU instance that it may use, or AnyGI.
	GI int
	// Who it is, for people.
	Who string
}

// UnaccountedOn are those of the containers that the runtime lists that use a GPU and that nobody has accounted for: what the
// ledger does not know, and the driver's processes do not show as long as a container only waits with its file open. With the
// right to use some instances only, these alone count.
func (r *Runtime) UnaccountedOn(gpu sharing.GPUID, seen []sharing.Seen) []Unaccounted {
	v, known := r.Store.GPU(sharing.GPURef{UUID: gpu})
	if !known {
		return nil
	}
	file := fmt.Sprintf("nvidia%d", v.GPU.Minor)
	var out []Unaccounted
	for _, s := range seen {
		if !s.Running || s.Gone || !slices.Contains(s.Devices, file) || r.Accounted(s) {
			continue
		}
		who := fmt.Sprintf("container %s (%s), which has no grant that is accounted for", s.Ref, s.ID)
		allowed := r.Instances.Files.Allowed(v.GPU, s.Devices)
		if len(allowed) == 0 {
			allowed = []int{AnyGI}
		}
		for _, gi := range allowed {
			out = append(out, Unaccounted{gi, who})
		}
	}
	return out
}
