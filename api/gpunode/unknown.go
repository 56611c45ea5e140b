// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

import "encoding/json"

// Unknown is what Summary has for an amount of memory that is not known.
const Unknown = "unknown"

// MarshalJSON leaves out the amounts of memory of a GPU that uses the system's memory: they are unknown, and not 0.
func (g GPU) MarshalJSON() ([]byte, error) {
	type plain GPU
	if !g.SystemMemory {
		return json.Marshal(plain(g))
	}
	return json.Marshal(struct {
		plain
		CapacityBytes    *int64 `json:"capacityBytes,omitempty"`
		AllocatableBytes *int64 `json:"allocatableBytes,omitempty"`
		FreeBytes        *int64 `json:"freeBytes,omitempty"`
		GrantedBytes     *int64 `json:"grantedBytes,omitempty"`
	}{plain: plain(g)})
}
