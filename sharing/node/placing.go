// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// placing is the node as a placement sees it now, with these grants and GPUs.
func (r *Runtime) placing(l store.Reader) *place.Node {
	at := &place.Node{
		Backends: place.Backends{Config: r.settings.Config(), Pool: r.settings.Pool(),
			Settings: map[sharing.GPURef]config.GPUSettings{}},
		GPUs: l.GPUs(), Grants: l.Grants(), NoMPSForPods: r.NoMPSForPods, OwnerOf: r.opt.ownerOf,
		Modes: r.Modes, Health: r.Health, MIG: r.Instances.Manager(), Held: r.Instances.Holds.On,
	}
	for _, v := range at.GPUs {
		at.Settings[v.GPU.Ref()] = r.settings.Of(v.GPU, at.Grants)
	}
	if att := r.Driver.Get(); att != nil {
		at.Reports = att.Levels
	}
	return at
}

// ownerOf is the user to whom a UID belongs.
func (o *Options) ownerOf(uid uint32) uint32 {
	if o.OwnerOf == nil {
		return uid
	}
	return o.OwnerOf(uid)
}
