// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

// Placed is where a request goes, and what enforces it there.
type Placed struct {
	// Request is complete. One for memory that only hardware may enforce is one for a MIG instance.
	Request   sharing.Request
	Placement sharing.Placement
	Enforced  choice.Choice
}

// NoInstance is the error of a request for a MIG instance that the node has no room for. It wraps the error that says so.
type NoInstance struct {
	error
	// Reason is that of the GPU that came nearest to an answer.
	Reason mig.Reason
	// Tries is how often the node looked for an instance.
	Tries int
}

// Unwrap returns the error for people.
func (e *NoInstance) Unwrap() error { return e.error }

// choose places a request where the advice says if it still fits there, else where it fits. but replaces answers of backends.
func (n *Node) choose(req sharing.Request, advice sharing.Advice, but choice.Without) (sharing.Placement, error) {
	if req.Kind == sharing.KindMIG {
		return n.chooseInstance(req, advice)
	}
	states := n.Free(req.Profile, but)
	if len(advice.GPUs) == req.GPUs {
		planned := slices.DeleteFunc(slices.Clone(states), func(s allocator.GPUState) bool { return !slices.Contains(advice.Shares(), s.GPU.UUID) })
		if p, err := allocator.Choose(planned, req); err == nil {
			return p, nil
		}
	}
	if p, ok := chooseNear(states, req, advice.Near); ok {
		return p, nil
	}
	return allocator.Choose(states, req)
}

func (n *Node) chooseInstance(req sharing.Request, advice sharing.Advice) (sharing.Placement, error) {
	var gpus []instances.Candidate
	for _, v := range n.GPUs {
		if id := v.GPU.UUID; !id.IsPart() {
			gpus = append(gpus, instances.Candidate{
				GPU: v.GPU, Turns: n.Modes.Turns(id), Switching: n.Modes.Switching(id), Taken: append(n.Granted(id), n.Faults(id)...),
			})
		}
	}
	p, reason, err := instances.Choose(n.MIG, gpus, req, advice)
	if err != nil {
		return nil, &NoInstance{err, reason, 1}
	}
	return p, nil
}

// Hardened is a request for memory that only hardware may enforce as one for the smallest MIG instance that has it, if the node
// creates instances. Any other request stays as it is.
func (n *Node) Hardened(req sharing.Request) sharing.Request {
	gives := func(v ledger.View) bool { return v.GPU.MIG || n.Modes.Turns(v.GPU.UUID) }
	hard := instances.Hardened(req)
	if hard.Kind == req.Kind || n.MIG == nil || !slices.ContainsFunc(n.GPUs, gives) {
		return req
	}
	return hard
}

// HardenedAll is Hardened for each of the requests.
func (n *Node) HardenedAll(list []sharing.Request) []sharing.Request {
	out := make([]sharing.Request, len(list))
	for i, req := range list {
		out[i] = n.Hardened(req)
	}
	return out
}

// chooseNear takes whole GPUs from the NUMA node that kubelet's topology manager chose. Ids of several nodes
// are no advice: either no node has enough GPUs, and then any split is on those nodes, or kubelet has no
// topology policy and took ids by chance, and then NVLink, which the allocator looks at, matters more.
func chooseNear(states []allocator.GPUState, req sharing.Request, near []sharing.Near) (sharing.Placement, bool) {
	if req.Kind != sharing.KindWhole || len(near) != 1 || near[0].Count != req.GPUs {
		return nil, false
	}
	local := slices.DeleteFunc(slices.Clone(states), func(s allocator.GPUState) bool { return s.GPU.NUMA != near[0].NUMA })
	p, err := allocator.Choose(local, req)
	return p, err == nil
}
