// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// UnaccountedOn are the containers that run, have the GPU's device file and belong to no grant. The ledger does not
// know them, and the driver lists no process of one that only has the file open. If a container may use some instances
// only, it uses these alone.
func (r *Runtime) UnaccountedOn(gpu sharing.GPUID, seen []sharing.Seen) []mig.User {
	v, known := r.Store.GPU(sharing.GPURef{UUID: gpu})
	if !known {
		return nil
	}
	file := fmt.Sprintf("nvidia%d", v.GPU.Minor)
	var out []mig.User
	for _, s := range seen {
		if !s.Running || s.Removed || !slices.Contains(s.Devices, file) || r.Accounted(s) {
			continue
		}
		who := fmt.Sprintf("container %s (%s), which has no grant that is accounted for", s.Ref, s.ID)
		allowed := r.Instances.Files.Allowed(v.GPU, s.Devices)
		if len(allowed) == 0 {
			allowed = []int{mig.AnyInstance}
		}
		for _, gi := range allowed {
			out = append(out, mig.User{GI: gi, Who: who})
		}
	}
	return out
}
