// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// devices are what the node publishes for ResourceClaims; false until the agent has seen the driver and all grants.
// Then the ResourceSlices of the agent before stay as they are.
func (f *claimFront) devices() ([]dra.Device, bool) {
	k := f.k
	k.Runtime.Conditions.Set(conditions.Claims, "") // the plugin has started
	if !f.known.Load() {
		if !k.Runtime.DriverSeen() || len(k.Runtime.NotReady()) > 0 {
			return nil, false
		}
		f.known.Store(true)
	}
	return devicesOf(k.Runtime.LedgerState(), k.Runtime.Settings().Pool()), true
}

// devicesOf are the devices of the GPUs that have the DRA front end. It is pure.
func devicesOf(b status.LedgerState, pool config.Pool) []dra.Device {
	var gpus []dra.GPU
	uses := map[sharing.GPUID]dra.Use{}
	for _, g := range b.GPUs {
		if g.Settings.FrontEnd != sharing.FrontEndDRA || g.Settings.Excluded || g.GPU.Ref().IsInstance() {
			continue
		}
		mode := g.Settings.Mode
		if mode == config.ModeAuto {
			mode = pool.Mode
		}
		gpus = append(gpus, dra.GPU{GPU: g.GPU, Share: mode.Shared(), Whole: mode.Whole(),
			MaxShares: g.Settings.MaxSharesPerGPU, Levels: g.Levels})
		uses[g.GPU.UUID] = dra.UseOf(g.Grants, g.Whole, g.FreeMemory)
	}
	ordered := dra.Ordered(gpus, func(id sharing.GPUID) dra.Use { return uses[id] })
	return dra.Devices(dra.Node{DriverVersion: b.DriverVersion}, ordered)
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
