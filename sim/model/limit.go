// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// limit stands on one cgroup on one GPU.
type limit struct {
	group      Group
	soft, hard sharing.Bytes
	used       sharing.Bytes // what is charged to it
}

// Limit is a limit as seen from outside.
type Limit struct {
	GPU   int
	Group Group
	Soft  sharing.Bytes
	Hard  sharing.Bytes // NoLimit: only a soft limit was set
	Used  sharing.Bytes
}

// SetLimit puts a limit on the group at the head of chain, or changes it. Soft 0 together with hard NoLimit clears it.
// With Misc a cleared limit stays as one that never refuses: as the nearest one it keeps those above it from counting,
// also where nothing was before (open-gpu-kernel-modules 615, memacct.c). admin says whether the caller has
// CAP_SYS_ADMIN. Errors, by nvml.h of NVML 13.4: NotSupported (the driver has no limits, the GPU is in MIG mode, or it
// is the root group; assumed for a GPU without dedicated memory), NoPermission, Invalid (hard 0, soft above hard, or a
// limit above the GPU's memory), InvalidLimit (below present use with Misc), Lost.
func (m *Model) SetLimit(index int, admin bool, chain Chain, soft, hard sharing.Bytes) error {
	g, err := m.gpu(index)
	if err != nil {
		return err
	}
	total := g.hw.Model.Memory
	switch {
	case !m.driver.MemoryLimits:
		return wire.NotSupported
	case !admin:
		return wire.NoPermission
	case g.hw.MIG, g.hw.Model.SystemMemory:
		return wire.NotSupported
	case hard == 0 || soft > hard || soft > total || hard > total && hard != NoLimit:
		return wire.Invalid
	case len(chain) == 0:
		return wire.NotSupported
	}
	group := chain[0]
	misc := m.machine.Memacct == machine.Misc
	if soft == 0 && hard == NoLimit && !misc {
		delete(g.limits, group.ID)
		return nil
	}
	l, there := g.limits[group.ID]
	if !there {
		l = &limit{group: group}
	}
	if misc && hard < l.used {
		return wire.InvalidLimit
	}
	l.soft, l.hard = soft, hard
	g.limits[group.ID] = l
	return nil
}

// GetLimit returns the limit on the group at the head of chain; with Misc, where it has none, the nearest one above it.
// With Misc that may be a cleared one. Errors: NotFound (there is none), NotSupported (the driver has no limits, or the
// GPU is in MIG mode), Lost.
func (m *Model) GetLimit(index int, chain Chain) (Limit, error) {
	g, err := m.gpu(index)
	if err != nil {
		return Limit{}, err
	}
	if !m.driver.MemoryLimits || g.hw.MIG || g.hw.Model.SystemMemory {
		return Limit{}, wire.NotSupported
	}
	for _, group := range chain {
		if l, ok := g.limits[group.ID]; ok {
			return l.outside(index), nil
		}
		if m.machine.Memacct != machine.Misc {
			break
		}
	}
	return Limit{}, wire.NotFound
}

func (l *limit) outside(index int) Limit {
	return Limit{GPU: index, Group: l.group, Soft: l.soft, Hard: l.hard, Used: l.used}
}

// Limits returns all limits but cleared ones, also those on lost GPUs, by GPU and directory.
func (m *Model) Limits() []Limit {
	var all []Limit
	for _, g := range m.gpus {
		for _, l := range g.limits {
			if l.soft != 0 || l.hard != NoLimit {
				all = append(all, l.outside(g.index))
			}
		}
	}
	slices.SortFunc(all, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Group.Dir, b.Group.Dir),
			cmp.Compare(a.Group.ID, b.Group.ID))
	})
	return all
}

// ForgetGroup clears what stood on a cgroup that is gone.
func (m *Model) ForgetGroup(id uint64) {
	for _, g := range m.gpus {
		delete(g.limits, id)
	}
}
