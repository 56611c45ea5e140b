// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// Hold keeps a MIG instance, created or not, for a ResourceClaim until its pod is bound. It is no grant: no
// container gets the instance by it.
type Hold struct {
	// Key is the allocation of the claim, and ClaimUID the claim. Who is the claim, for people.
	Key, ClaimUID, Who string
	GPU                sharing.GPUID
	Instance           sharing.Instance
}

// Holds are those of a node. The zero value has none. Its lock is taken inside the store.
type Holds struct {
	mu   sync.Mutex
	list []Hold
}

// Add adds a hold, in place of one of the same allocation for the same instance.
func (h *Holds) Add(one Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.list, one) {
		h.list = append(h.list, one)
	}
}

// Remove removes the holds of an allocation.
func (h *Holds) Remove(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = slices.DeleteFunc(h.list, func(o Hold) bool { return o.Key == key })
}

// On are the instances of a GPU that are held for claims other than these, by UID.
func (h *Holds) On(gpu sharing.GPUID, but []string) []mig.Granted {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []mig.Granted
	for _, o := range h.list {
		if o.GPU == gpu && !slices.Contains(but, o.ClaimUID) {
			out = append(out, mig.Granted{Instance: o.Instance, Who: o.Who})
		}
	}
	return out
}
