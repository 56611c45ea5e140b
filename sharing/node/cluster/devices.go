// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// devices are what the node publishes for ResourceClaims; false until the agent has seen the driver and all grants.
// Then the ResourceSlices of the agent before stay as they are.
func (f *claimFront) devices() ([]dra.Device, bool) {
	k := f.k
	if !f.known.Load() {
		if !k.Runtime.DriverSeen() || len(k.Runtime.NotReady()) > 0 {
			return nil, false
		}
		f.known.Store(true)
	}
	state := k.Runtime.LedgerState()
	state.GPUs = unavailable(state.GPUs, f.creator.Tainted)
	return devicesOf(state, k.Runtime.Settings().Pool()), true
}

// devicesOf are the devices of the GPUs that have the DRA front end. It is pure.
func devicesOf(b status.LedgerState, pool config.Pool) []dra.Device {
	var gpus []dra.GPU
	uses, migUses := map[sharing.GPUID]dra.Use{}, map[sharing.GPUID]dra.Use{}
	for _, g := range b.GPUs {
		if g.Settings.FrontEnd != sharing.FrontEndDRA || g.Settings.Excluded || g.GPU.Ref().IsInstance() {
			continue
		}
		mode := g.Settings.Mode
		if mode == config.ModeAuto {
			mode = pool.Mode
		}
		gpus = append(gpus, dra.GPU{GPU: g.GPU, Share: mode.Shared(), Whole: mode.Whole(),
			MaxShares: g.Settings.MaxSharesPerGPU, Levels: g.Levels,
			Partition: partitionOf(g, mode, pool.BindingConditions),
			Evict:     pool.Health.OnFault == config.FaultEvict})
		uses[g.GPU.UUID], migUses[g.GPU.UUID] = usesOf(g)
	}
	node := dra.Node{DriverVersion: b.DriverVersion, CUDAVersion: b.CUDAVersion}
	return append(
		dra.Devices(node, dra.Ordered(gpus, func(id sharing.GPUID) dra.Use { return uses[id] })),
		dra.Instances(node, dra.Ordered(gpus, func(id sharing.GPUID) dra.Use { return migUses[id] }))...)
}

// usesOf is the use of a GPU for shares and whole GPUs, and for MIG instances. A GPU in the other mode comes last, so
// that the scheduler makes no GPU change its mode without need.
func usesOf(g status.BookedGPU) (shares, instances dra.Use) {
	switch {
	case g.GPU.MIG && g.Grants > 0:
		return dra.UseFull, dra.UseShared
	case g.GPU.MIG:
		return dra.UseFull, dra.UseEmpty
	}
	return dra.UseOf(g.Grants, g.Whole, g.FreeMemory), dra.UseFull
}

// partitionOf is what a GPU gives as MIG instances, before or after its pod is bound. Its instances are not published
// if they are shared.
func partitionOf(g status.BookedGPU, mode config.Mode, beforeBinding bool) dra.MIG {
	out := dra.MIG{Only: g.GPU.MIG && !g.MIG.ModeSwitchable, BeforeBinding: beforeBinding}
	if !mode.MIG() || g.MIG.Shared {
		return out
	}
	out.Geometry, out.Fixed = g.MIG.Geometry, g.MIG.Fixed
	out.Unavailable, out.Faulty = g.MIG.Error != "", g.Faulty
	for _, in := range g.MIG.Instances {
		switch {
		case !in.Managed:
			out.Unmanaged = append(out.Unmanaged, in.Instance)
		case in.Ready:
			out.Made = append(out.Made, in.Instance)
		}
	}
	return out
}

// ofDevicePlugin are the units with what the device plugin advertises of them: nothing of a GPU that pods get by
// ResourceClaim. any is true if it advertises something.
func ofDevicePlugin(units []deviceplugin.Unit, claims func(sharing.GPUID) bool) (out []deviceplugin.Unit, some bool) {
	for _, u := range units {
		if claims(u.GPU.UUID) {
			u.NoShare, u.NoWhole, u.InMIGMode, u.MIG = true, true, false, nil
		} else {
			some = true
		}
		out = append(out, u)
	}
	return out, some
}
