// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package place chooses the GPUs and the backend for a request on one node.
//
// It promises that a choice follows from a Node alone: no method waits, reads a clock, or changes anything. Who takes
// the Node under a lock and enters the grant under the same lock has chosen and booked in one transaction.
package place

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

// MIG is the MIG manager.
type MIG interface {
	// Candidate is what a GPU gives to a request for a profile, in addition to what is taken.
	Candidate(gpu sharing.GPUID, profile string, start int, taken []mig.Granted) mig.Candidate
	// Fits reports whether an instance of the GPU answers a request for a profile.
	Fits(gpu sharing.GPUID, profile string, in sharing.Instance) bool
}

// Modes is the switcher of MIG modes.
type Modes interface {
	// ModeSwitchable reports whether demand may switch the GPU's MIG mode.
	ModeSwitchable(gpu sharing.GPUID) bool
	// Switching is a clause that says what the GPU switches to; empty if it does not.
	Switching(gpu sharing.GPUID) string
	// Before is the report of a GPU in MIG mode from before the switch, if there was one.
	Before(gpu sharing.GPUID) (choice.Report, bool)
}

// Health is the health of MIG instances.
type Health interface {
	// Unavailable are the instances of a GPU that no grant can have because of a fault.
	Unavailable(gpu sharing.GPUID) []mig.Granted
}

// Node is a node at one moment. Use it before the next grant changes.
type Node struct {
	Backends
	GPUs   []ledger.View
	Grants []ledger.Grant
	// NoMPSForPods says why MPS cannot enforce shares of containers; empty if it can.
	NoMPSForPods string
	// OwnerOf is the user to whom a UID belongs.
	OwnerOf func(uid uint32) uint32

	Modes  Modes
	Health Health
	// MIG is nil if nothing creates MIG instances now.
	MIG MIG

	// Held are the instances of a GPU that are held for claims other than these, by UID.
	Held func(gpu sharing.GPUID, but []string) []mig.Granted

	// byPlugin leaves out the GPUs that pods get by ResourceClaim.
	byPlugin bool
	// claims are the UIDs of the claims of the request.
	claims []string
}

// of is the node for the request of a container. What the device plugin admitted gets no GPU of the DRA front end,
// which the cluster's scheduler allocates by itself.
func (n *Node) of(asks []sharing.ResourceRequest) *Node {
	if sharing.OfClaims(asks) {
		var uids []string
		for _, a := range asks {
			uids = append(uids, a.ClaimUID())
		}
		return forClaims(n, uids)
	}
	if len(asks) == 0 {
		return n
	}
	plugin := *n
	plugin.byPlugin = true
	return &plugin
}

// forClaims is the node for a request of claims, which may have the instances that are held for them.
func forClaims(n *Node, uids []string) *Node {
	own := *n
	own.claims = uids
	return &own
}

// gpu finds a GPU.
func (n *Node) gpu(id sharing.GPURef) (ledger.View, bool) {
	i := slices.IndexFunc(n.GPUs, func(v ledger.View) bool { return v.GPU.Ref() == id })
	if i < 0 {
		return ledger.View{}, false
	}
	return n.GPUs[i], true
}

// Granted is what grants have of a GPU, and what is held for other claims than those of the request.
func (n *Node) Granted(gpu sharing.GPUID) []mig.Granted {
	out := instances.Granted(gpu, n.Grants, n.gpu)
	if n.Held != nil {
		out = append(out, n.Held(gpu, n.claims)...)
	}
	return out
}

// Faults are the MIG instances of a GPU that no grant can have because of a fault.
func (n *Node) Faults(gpu sharing.GPUID) []mig.Granted { return n.Health.Unavailable(gpu) }

// Free is the allocator's view of all GPUs for a request of that profile. but replaces answers of backends.
func (n *Node) Free(profile string, but choice.Without) []allocator.GPUState {
	out := make([]allocator.GPUState, 0, len(n.GPUs))
	mps, others := mixes(n.Grants)
	for _, v := range n.GPUs {
		id := v.GPU.Ref()
		s := allocator.GPUState{GPU: v.GPU, FreeMemory: v.FreeMemory, FreePercent: v.FreePercent, Burst: v.BurstMemory,
			InUse: v.Grants > 0}
		list := n.List(id, profile)
		levels, by := n.levels(v.GPU, list, but.Alongside(mps[id], others[id]))
		s.Levels, s.LevelReason = levels, by.Reason
		if mps[id] && !backend.PropertiesOf(by.Backend).Served {
			s.Shut = "runs MPS for other grants, which cannot hold this one (" + s.LevelReason + ")"
			s.Levels, by = n.levels(v.GPU, list, but.Alongside(false, others[id])) // once those grants have ended
			s.LevelReason = by.Reason
		}
		apply(&s, n.Settings[id], v.Grants)
		if n.byPlugin && n.Settings[id].FrontEnd == sharing.FrontEndDRA {
			const why = "is given only by ResourceClaim (frontend dra)"
			s.Shut, s.NoWhole = why, why
		}
		if why := n.Modes.Switching(id.UUID); !id.IsInstance() {
			s.ModeSwitchable = n.Modes.ModeSwitchable(id.UUID)
			s.Shut, s.NoWhole = cmp.Or(why, s.Shut), cmp.Or(why, s.NoWhole)
		}
		out = append(out, s)
	}
	return out
}

// Recall returns how much burst memory each GPU must get back so that the requests fit. It takes none from the GPUs in
// inUse. The result is empty if the requests do not fit even then.
func (n *Node) Recall(requests []sharing.Request, inUse map[sharing.GPURef]bool) map[sharing.GPURef]sharing.Bytes {
	if len(requests) == 0 {
		return nil
	}
	states := n.Free(requests[0].Profile, nil)
	for i := range states {
		if inUse[states[i].GPU.Ref()] {
			states[i].Burst = 0
		}
	}
	back, err := allocator.Recall(states, requests)
	if err != nil {
		return nil
	}
	return back
}

// Rules applies the settings of a GPU to its view, as if it had no grants, and returns the backends for its shares.
func (n *Node) Rules(s *allocator.GPUState, profile string) []sharing.Backend {
	apply(s, n.Settings[s.GPU.Ref()], 0)
	return n.List(s.GPU.Ref(), profile)
}

// apply restricts the view of a GPU with so many grants to what its settings allow.
func apply(s *allocator.GPUState, set config.GPUSettings, grants int) {
	s.ShareCount, s.MaxShares, s.MinLevel = grants, set.MaxSharesPerGPU, set.MinLevel
	if s.GPU.Ref().IsInstance() {
		set.Mode = config.ModeAuto // the GPU of a shared instance gives that instance
	}
	if set.Excluded {
		s.Give("", false, false)
		return
	}
	s.Give(set.Mode.String(), set.Mode.Shared(), set.Mode.Whole())
}

// mixes are the GPUs that have shares which MPS enforces, and those that have other shares. No GPU has both.
func mixes(grants []ledger.Grant) (mps, others map[sharing.GPURef]bool) {
	mps, others = map[sharing.GPURef]bool{}, map[sharing.GPURef]bool{}
	for i := range grants {
		c := &grants[i].Reservation
		for _, f := range c.Placement {
			switch {
			case f.Whole:
			case backend.PropertiesOf(c.Backend).Served:
				mps[f.GPU] = true
			default:
				others[f.GPU] = true
			}
		}
	}
	return mps, others
}
