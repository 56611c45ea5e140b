// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// told is a GPU's health as the watch told it.
type told struct {
	health sharing.Health
	reason string
}

// SetTrouble tells which GPUs must not be used whatever the health watch says, and why: their MIG instances are not as
// they should be, and could not be made so. A GPU that is missing is in no trouble.
func (r *Runtime) SetTrouble(trouble map[sharing.GPUID]string) {
	r.mu.Lock()
	same := maps.Equal(r.trouble, trouble)
	if !same {
		r.trouble = maps.Clone(trouble)
		for id, was := range r.told {
			r.setHealth(id, was.health, was.reason)
		}
	}
	r.mu.Unlock()
	if !same {
		r.changed.announce()
	}
}

// OnGPU is what a claim holds of a GPU.
type OnGPU struct {
	// Instance is none for a share of the GPU, or all of it.
	Instance sharing.Instance
	// Who holds it, for people.
	Who string
}

// ClaimsOn are the claims on a GPU. While a container runtime has not told yet what runs, it is sharing.ErrUnavailable:
// a container that is not known yet may use the GPU.
func (r *Runtime) ClaimsOn(gpu sharing.GPUID) ([]OnGPU, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.restored || r.awaitWitness && !r.witnessed {
		return nil, fmt.Errorf("the container runtime has not told yet what runs: %w", sharing.ErrUnavailable)
	}
	var out []OnGPU
	for _, g := range r.ledger.Grants() {
		if f, on := g.Claim.Placement.On(gpu); on {
			out = append(out, OnGPU{f.MIG, holderName(g.Claim)})
		}
	}
	return out, nil
}

// holderName is a claim's holder as people know it.
func holderName(c ledger.Claim) string {
	switch {
	case c.Owner.Pod():
		return fmt.Sprintf("pod %s/%s", c.Owner.Namespace, c.Owner.PodName)
	case c.Name != "":
		return fmt.Sprintf("grant %s (%s)", c.ID, c.Name)
	}
	return "grant " + string(c.ID)
}
