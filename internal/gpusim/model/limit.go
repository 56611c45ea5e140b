// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/internal/gpusim/machine"
	"github.com/kerf-gpu/kerf/internal/gpusim/wire"
	"github.com/kerf-gpu/kerf/sharing"
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

// SetLimit puts a limit on the group at the head of chain, or changes it; soft 0 together with hard NoLimit
// clears it, whether there was one or not. admin says whether the caller has CAP_SYS_ADMIN. Errors: NotSupported (the
// driver has no limits, or the GPU is in MIG mode), NoPermission, Invalid (hard 0, soft above hard),
// InvalidLimit (root group, or below present use with Misc), Lost.
func (m *Model) SetLimit(index int, admin bool, chain Chain, soft, hard sharing.Bytes) error {
	g, err := m.gpu(index)
	if err != nil {
		return err
	}
	switch {
	case !m.driver.MemoryLimits:
		return wire.NotSupported
	case !admin:
		return wire.NoPermission
	case g.hw.MIG:
		return wire.NotSupported
	case hard == 0 || soft > hard:
		return wire.Invalid
	case len(chain) == 0:
		return wire.InvalidLimit
	}
	group := chain[0]
	if soft == 0 && hard == NoLimit {
		delete(g.limits, group.ID)
		return nil
	}
	l, there := g.limits[group.ID]
	if !there {
		l = &limit{group: group}
	}
	if m.machine.Memacct == machine.Misc && hard < l.used {
		return wire.InvalidLimit
	}
	l.soft, l.hard = soft, hard
	g.limits[group.ID] = l
	return nil
}

// GetLimit returns the limit that stands nearest up the tree from chain's head. Errors: NotSupported (there
// is none, or the driver has no limits), Lost.
func (m *Model) GetLimit(index int, chain Chain) (Limit, error) {
	g, err := m.gpu(index)
	if err != nil {
		return Limit{}, err
	}
	if !m.driver.MemoryLimits {
		return Limit{}, wire.NotSupported
	}
	for _, group := range chain {
		if l, ok := g.limits[group.ID]; ok {
			return l.outside(index), nil
		}
	}
	return Limit{}, wire.NotSupported
}

func (l *limit) outside(index int) Limit {
	return Limit{GPU: index, Group: l.group, Soft: l.soft, Hard: l.hard, Used: l.used}
}

// Limits returns all limits, also those on lost GPUs, by GPU and directory.
func (m *Model) Limits() []Limit {
	var all []Limit
	for _, g := range m.gpus {
		for _, l := range g.limits {
			all = append(all, l.outside(g.index))
		}
	}
	slices.SortFunc(all, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Group.Dir, b.Group.Dir), cmp.Compare(a.Group.ID, b.Group.ID))
	})
	return all
}

// ForgetGroup clears what stood on a cgroup that is gone.
func (m *Model) ForgetGroup(id uint64) {
	for _, g := range m.gpus {
		delete(g.limits, id)
	}
}
