// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"cmp"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// View is what is known of one GPU.
type View struct {
	GPU sharing.GPUID
	// Able is true for a GPU that can be cut, and On while it is in MIG mode.
	Able, On bool
	// Axis is the number of placement units, 0 while it is not known, and Profiles the names of what it can be cut into.
	Axis     int
	Profiles []string
	// Geometry has these profiles, while it is in MIG mode, or may be put there. The caller must not change their Starts.
	Geometry []mig.Profile
	// Fixed is true where a layout says what the GPU has, and where settings are read-only.
	Fixed bool
	// Shared is true where its instances are shared, and none is given whole.
	Shared bool
	// Turns is true where demand may change the MIG mode. Busy says then what keeps it as it is, a clause, and empty where
	// nothing does; Turned is when it changed last, zero where it has not.
	Turns  bool
	Busy   string
	Turned time.Time
	// Most is how many instances of each profile it can have at once in MIG mode, by the profiles' names: those of its
	// layout, or as many as fit on it alone. With read-only settings it counts the instances that are there. It is nil while the GPU is not in MIG mode, and demand may not put it there.
	Most map[string]int
	// Pieces are in the order of their starts.
	Pieces []Piece
	// Trouble is why the GPU gives no instances, and Waits why it is not as the pool wants it; empty where all is well.
	Trouble, Waits string
}

// Piece is an instance that is there, or is being cut.
type Piece struct {
	sharing.Instance
	// Memory is what programs can use of it.
	Memory sharing.Bytes
	// GI is the driver's id, -1 while it is not there.
	GI int
	// Ours is false for one that Kerf did not make, and then nobody gets it and nobody destroys it.
	Ours bool
	// Ready is false while it is being cut, or has no compute instance.
	Ready bool
	// UUID is the MIG device's, empty while it is not ready.
	UUID string
	// For is who waits for it while it is being cut.
	For string
}

// Views are those of all GPUs, in their order.
func (m *Manager) Views() []View {
	out := make([]View, len(m.pages))
	for i, p := range m.pages {
		p.mu.Lock()
		out[i] = p.view()
		p.mu.Unlock()
		if m.opt.ReadOnly {
			out[i].keepMade()
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
func (p *page) view() View {
	v := View{GPU: p.gpu.ID, Able: p.table != nil, On: p.on, Fixed: len(p.want.Fixed) > 0, Shared: p.want.Shared, Trouble: p.trouble, Waits: p.waits, Turns: p.turns, Turned: p.turned}
	if p.turns {
		v.Busy = p.busy
	}
	if p.table == nil {
		return v
	}
	v.Axis = p.table.Axis()
	for _, one := range p.table.Profiles() {
		v.Profiles = append(v.Profiles, one.Name)
	}
	if !p.on && !p.turns {
		return v
	}
	v.Most, v.Geometry = p.most(), p.table.Profiles()
	for _, o := range p.mine {
		v.Pieces = append(v.Pieces, Piece{Instance: instance(p.table, o.Place), Memory: p.memory(o.Place), GI: o.GI, Ours: true, Ready: o.CI >= 0, UUID: o.UUID, For: p.cutting[o.Place]})
	}
	for _, f := range p.foreign {
		v.Pieces = append(v.Pieces, Piece{Instance: instance(p.table, f.Place), Memory: p.memory(f.Place), GI: f.GI, Ready: len(f.CIs) > 0})
	}
	for at, who := range p.cutting {
		if !slices.ContainsFunc(v.Pieces, func(one Piece) bool { return one.ID == at.Profile && one.Start == at.Start }) {
			v.Pieces = append(v.Pieces, Piece{Instance: instance(p.table, at), Memory: p.memory(at), GI: -1, Ours: true, For: who})
		}
	}
	slices.SortFunc(v.Pieces, func(a, b Piece) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID)) })
	return v
}

// keepMade makes it the view of a GPU that gets no more instances: those that Kerf made are all that it gives.
func (v *View) keepMade() {
	if v.Most == nil {
		return
	}
	v.Fixed = true
	if v.Shared {
		return
	}
	v.Most = map[string]int{}
	for _, one := range v.Pieces {
		if one.Ours && one.Ready {
			v.Most[one.Profile]++
		}
	}
}

// memory needs a table.
func (p *page) memory(at mig.Place) sharing.Bytes {
	profile, _ := p.table.Profile(at.Profile) // the driver's own list
	return profile.Memory
}

// most needs p.mu, and a table.
func (p *page) most() map[string]int {
	out := map[string]int{}
	if p.want.Shared {
		return out
	}
	if len(p.want.Fixed) == 0 {
		for _, one := range p.table.Profiles() {
			out[one.Name] = one.Most
		}
		return out
	}
	for _, n := range p.want.Fixed {
		if one, err := p.table.Lookup("mig.instances", n.Profile); err == nil {
			out[one.Name] += n.Count
		}
	}
	return out
}

func instance(t *mig.Table, at mig.Place) sharing.Instance {
	p, _ := t.Profile(at.Profile) // the driver's own list
	return sharing.Instance{Profile: t.Name(at.Profile), ID: at.Profile, Start: at.Start, Size: max(p.Size, 1)}
}
