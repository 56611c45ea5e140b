// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"

	"github.com/kerf-gpu/kerf/mig/keep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// migDoor turns what keeps the GPUs' MIG instances into what the runtime asks for.
type migDoor struct{ cuts *keep.Manager }

var _ node.MIG = migDoor{}

// Offer implements node.MIG, as do the others.
func (d migDoor) Offer(gpu sharing.GPUID, profile string, start int, claimed []node.OnGPU) node.MIGOffer {
	if start == node.AnyStart {
		start = keep.Any
	}
	return toOffer(d.cuts.Offer(gpu, profile, start, toClaimed(claimed)))
}

// Would is Offer of a GPU as if it were in MIG mode.
func (d migDoor) Would(gpu sharing.GPUID, profile string, start int, claimed []node.OnGPU) node.MIGOffer {
	if start == node.AnyStart {
		start = keep.Any
	}
	return toOffer(d.cuts.Would(gpu, profile, start, toClaimed(claimed)))
}

// Turns implements node.MIG.
func (d migDoor) Turns(gpu sharing.GPUID) bool { return d.cuts.Turns(gpu) }

// Turn implements node.MIG.
func (d migDoor) Turn(ctx context.Context, gpu sharing.GPUID, on bool) error {
	return d.cuts.Turn(ctx, gpu, on)
}

// Fits implements node.MIG.
func (d migDoor) Fits(gpu sharing.GPUID, profile string, in sharing.Instance) bool {
	return d.cuts.Fits(gpu, profile, in)
}

// Ensure implements node.MIG.
func (d migDoor) Ensure(ctx context.Context, gpu sharing.GPUID, in sharing.Instance, who string) (sharing.MIGDevice, bool, error) {
	return d.cuts.Ensure(ctx, gpu, in, who)
}

// Wake implements node.MIG.
func (d migDoor) Wake() { d.cuts.Wake() }

func toOffer(o keep.Offer) node.MIGOffer {
	return node.MIGOffer{Fragment: o.Fragment, Steps: o.Steps, Loss: o.Loss, Why: o.Why, Reason: string(o.Reason), Never: o.Never, Unknown: o.Unknown}
}

// States are the views.
func (d migDoor) States() []node.MIGState {
	var out []node.MIGState
	for _, v := range d.cuts.Views() {
		s := node.MIGState{GPU: v.GPU, Able: v.Able, On: v.On, Fixed: v.Fixed, Shared: v.Shared, Units: v.Axis, Profiles: v.Profiles, Geometry: v.Geometry, Most: v.Most, Trouble: v.Trouble, Waits: v.Waits, Turns: v.Turns, Busy: v.Busy, Turned: v.Turned}
		for _, p := range v.Pieces {
			s.Pieces = append(s.Pieces, node.MIGPiece{Instance: p.Instance, Ours: p.Ours, Ready: p.Ready, UUID: p.UUID, Holder: p.For})
		}
		out = append(out, s)
	}
	return out
}

func toClaimed(list []node.OnGPU) []keep.Claimed {
	out := make([]keep.Claimed, len(list))
	for i, c := range list {
		out[i] = keep.Claimed{Instance: c.Instance, Who: c.Who}
	}
	return out
}
