// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// States are what is known of all GPUs, in their order.
func (m *Manager) States() []mig.State {
	out := make([]mig.State, len(m.pages))
	for i, p := range m.pages {
		p.mu.Lock()
		out[i] = p.view()
		p.mu.Unlock()
		if m.opt.ReadOnly {
			keepMade(&out[i])
		}
	}
	return out
}

// GI is the driver's id of the GPU instance that Kerf has at a place; false where it has none there that is ready.
func (m *Manager) GI(gpu sharing.GPUID, profile string, start int) (int, bool) {
	p := m.page(gpu)
	if p == nil {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.mine {
		if o.Place.Start == start && o.CI >= 0 && p.table.Name(o.Place.Profile) == profile {
			return o.GI, true
		}
	}
	return 0, false
}

// view needs p.mu.
func (p *page) view() mig.State {
	v := mig.State{GPU: p.gpu.ID, Able: p.table != nil, On: p.on, Fixed: len(p.want.Fixed) > 0, Shared: p.want.Shared,
		Error: p.trouble, PendingReason: p.waits, ModeSwitchable: p.turns, ModeSwitchedAt: p.turned}
	if p.turns {
		v.Busy = p.busy
	}
	if p.table == nil {
		return v
	}
	v.Units = p.table.Axis()
	for _, one := range p.table.Profiles() {
		v.Profiles = append(v.Profiles, one.Name)
	}
	if !p.on && !p.turns {
		return v
	}
	v.MaxInstances, v.Geometry = p.most(), p.table.Profiles()
	for _, o := range p.mine {
		v.Instances = append(v.Instances, mig.Instance{Instance: instance(p.table, o.Place), Memory: p.memory(o.Place),
			GI: o.GI, Managed: true, Ready: o.CI >= 0, UUID: o.UUID, Owner: p.creating[o.Place]})
	}
	for _, f := range p.foreign {
		v.Instances = append(v.Instances, mig.Instance{Instance: instance(p.table, f.Place), Memory: p.memory(f.Place),
			GI: f.GI, Ready: len(f.CIs) > 0})
	}
	for at, who := range p.creating {
		if !slices.ContainsFunc(v.Instances, func(one mig.Instance) bool {
			return one.ID == at.Profile &&
				one.Start == at.Start
		}) {
			v.Instances = append(v.Instances, mig.Instance{Instance: instance(p.table, at), Memory: p.memory(at),
				GI: -1, Managed: true, Owner: who})
		}
	}
	slices.SortFunc(v.Instances, func(a, b mig.Instance) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start),
			cmp.Compare(a.ID, b.ID))
	})
	return v
}

// keepMade makes v the state of a GPU that gets no more instances: it gives those that Kerf created.
func keepMade(v *mig.State) {
	if v.MaxInstances == nil {
		return
	}
	v.Fixed = true
	if v.Shared {
		return
	}
	v.MaxInstances = map[string]int{}
	for _, one := range v.Instances {
		if one.Managed && one.Ready {
			v.MaxInstances[one.Profile]++
		}
	}
}

// memory needs a table.
func (s *seen) memory(at mig.Place) sharing.Bytes {
	profile, _ := s.table.Profile(at.Profile) // the driver's own list
	return profile.Memory
}

// most needs p.mu, and a table.
func (s *seen) most() map[string]int {
	out := map[string]int{}
	if s.want.Shared {
		return out
	}
	if len(s.want.Fixed) == 0 {
		for _, one := range s.table.Profiles() {
			out[one.Name] = one.MaxInstances
		}
		return out
	}
	for _, n := range s.want.Fixed {
		if one, err := s.table.Lookup("mig.instances", n.Profile); err == nil {
			out[one.Name] += n.Count
		}
	}
	return out
}

func instance(t *mig.Table, at mig.Place) sharing.Instance {
	p, _ := t.Profile(at.Profile) // the driver's own list
	return sharing.Instance{Profile: t.Name(at.Profile), ID: at.Profile, Start: at.Start, Size: max(p.Size, 1)}
}
