// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Candidate returns what the GPU can give for that profile, at that placement start or at mig.AnyStart, in addition to
// the existing grants. It calls no driver and uses the last sample.
func (m *Manager) Candidate(gpu sharing.GPUID, profile string, start int, reserved []mig.Granted) mig.Candidate {
	return m.offer(gpu, profile, start, reserved, false)
}

// kept is an offer of a Manager that changes nothing: of an instance that is there, or none.
func kept(o mig.Candidate) mig.Candidate {
	switch {
	case o.Reason == mig.NotInMIGMode && !strings.Contains(o.Detail, sharing.ReadOnlySettings):
		o.Detail += ", and " + sharing.ReadOnlySettings
	case o.Detail == "" && o.Steps > 0:
		return mig.Candidate{Detail: "has no such instance, and none is created: " + sharing.ReadOnlySettings,
			Never:  true,
			Reason: mig.NotInMIGMode}
	}
	return o
}

// Would is Candidate of a GPU that demand may change, as if it were in MIG mode already.
func (m *Manager) Would(gpu sharing.GPUID, profile string, start int, reserved []mig.Granted) mig.Candidate {
	return m.offer(gpu, profile, start, reserved, true)
}

func (m *Manager) offer(gpu sharing.GPUID, profile string, start int, reserved []mig.Granted,
	turned bool) mig.Candidate {
	o := m.offered(gpu, profile, start, reserved, turned)
	if m.opt.ReadOnly {
		return kept(o)
	}
	return o
}

func (m *Manager) offered(gpu sharing.GPUID, profile string, start int, reserved []mig.Granted,
	turned bool) mig.Candidate {
	p := m.page(gpu)
	if p == nil {
		return mig.Candidate{Detail: "is not known", Reason: mig.Faulty}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.trouble != "":
		return mig.Candidate{Detail: p.trouble, Reason: mig.Faulty}
	case !p.on && p.want.On && !p.want.Leave && p.waits != "":
		return mig.Candidate{Detail: "is not in MIG mode yet: " + p.waits, Reason: mig.NotInMIGMode}
	case !p.on && (!p.turns || p.table == nil):
		return mig.Candidate{Detail: "is not in MIG mode", Never: true, Reason: mig.NotInMIGMode}
	}
	if _, err := mig.ParseWish("mig", profile); err != nil {
		err = sharing.Invalid("mig", profile, "write one of "+p.table.Names(), "is not the name of a MIG profile")
		return mig.Candidate{Detail: err.Error(), Never: true, Unknown: err, Reason: mig.NoProfile}
	}
	found, err := p.table.Lookup("mig", profile)
	switch {
	case err != nil:
		return mig.Candidate{Detail: "has no such profile: it has " + p.table.Names(), Never: true, Unknown: err,
			Reason: mig.NoProfile}
	case !p.on && !turned:
		return mig.Candidate{Detail: "is not in MIG mode, and changes to it when it is idle", Reason: mig.NotInMIGMode}
	case p.want.Shared:
		return mig.Candidate{Detail: "its MIG instances are shared, and none is given whole", Never: true,
			Reason: mig.Shared}
	case len(p.want.Fixed) > 0:
		return p.fixed(found, start, reserved)
	}
	return p.demanded(found, start, reserved)
}

// Fits reports whether an instance on the GPU answers who asks for the profile of that name.
func (m *Manager) Fits(gpu sharing.GPUID, profile string, in sharing.Instance) bool {
	p := m.page(gpu)
	w, err := mig.ParseWish("mig", profile)
	if p == nil || err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table == nil {
		return false
	}
	found, err := p.table.Find("mig", w)
	if err != nil || found.ID == in.ID {
		return err == nil
	}
	has, known := p.table.Profile(in.ID)
	return known && w.AtLeast > 0 && has.Memory >= w.AtLeast
}

// fixed offers what a layout has; it needs p.mu.
func (p *page) fixed(found mig.Profile, start int, reserved []mig.Granted) mig.Candidate {
	has := 0
	for _, o := range slices.Backward(p.mine) {
		if o.Place.Profile != found.ID || o.CI < 0 {
			continue
		}
		has++
		if start != mig.AnyStart && o.Place.Start != start {
			continue
		}
		in := instance(p.table, o.Place)
		if !slices.ContainsFunc(reserved, func(c mig.Granted) bool { return c.Instance.Overlaps(in) }) {
			return mig.Candidate{Share: p.share(in)}
		}
	}
	switch {
	case has > 0:
	case p.laysOut(found):
		return mig.Candidate{Detail: fmt.Sprintf("the %s of its layout is not made yet: %s", found.Name, p.waits),
			Reason: mig.Faulty}
	default:
		return mig.Candidate{Detail: fmt.Sprintf("its layout has no %s", found.Name), Never: true,
			Reason: mig.NotLaidOut}
	}
	return mig.Candidate{Detail: fmt.Sprintf("all %d instances %s of its layout are in use", has, found.Name),
		Reason: mig.Full}
}

// laysOut reports whether the layout has the profile, made or not; it needs p.mu.
func (s *seen) laysOut(found mig.Profile) bool {
	return slices.ContainsFunc(s.want.Fixed, func(n config.MIGCount) bool {
		wanted, err := s.table.Lookup("mig.instances", n.Profile)
		return err == nil && wanted.ID == found.ID
	})
}

// demanded offers what can be created; it needs p.mu.
func (p *page) demanded(found mig.Profile, start int, reserved []mig.Granted) mig.Candidate {
	have, taken := p.have(reserved)
	made, err := plan.Make(plan.Request{Table: p.table, Values: p.values, Have: have,
		Wishes: []plan.Wish{{Profile: found.ID, Start: start}}})
	if err != nil {
		return mig.Candidate{Detail: err.Error(), Reason: mig.Faulty}
	}
	switch a := made.Answers[0]; a.State {
	case plan.Ready, plan.Made:
		mask, _ := p.table.Mask(a.Place) // one of the table's own places
		return mig.Candidate{
			Share: p.share(instance(p.table, a.Place)), Steps: len(made.Steps),
			Loss: int64(p.values.Loss(p.table.Free(taken), mask)),
		}
	case plan.Pending:
		o := mig.Candidate{Detail: a.Reason + "; in the way: " + strings.Join(a.BlockedBy, ", "), Reason: mig.Full}
		if a.Fragmented {
			o.Reason = mig.Fragmented
		}
		return o
	case plan.Unmanaged:
		return mig.Candidate{Detail: a.Reason, Reason: mig.Unmanaged}
	case plan.Never:
		return mig.Candidate{Detail: a.Reason, Reason: mig.NoProfile}
	}
	return mig.Candidate{Detail: "nothing is known of it", Reason: mig.Faulty}
}

// have is the GPU for a plan, and what is taken for good: what was made by others, and what grants have, made or not.
// Idle instances in a grant's place are about to go, and count no more. It needs p.mu.
func (s *seen) have(reserved []mig.Granted) ([]plan.Instance, mig.Occupancy) {
	var have []plan.Instance
	var taken mig.Occupancy
	for _, f := range s.foreign {
		have = append(have, plan.Instance{Place: f.Place, GI: f.GI, Ready: true})
		taken, _ = s.table.Try(taken, f.Place) // next to each other on the GPU
	}
	for _, c := range reserved {
		at := mig.Place{Profile: c.Instance.ID, Start: c.Instance.Start}
		after, ok := s.table.Try(taken, at)
		if c.Instance.None() || !ok {
			continue // creation reports what does not fit with the others
		}
		taken = after
		have = append(have, plan.Instance{Place: at, GI: -1, Ready: true, Managed: true, Users: []string{c.Who}})
	}
	all := taken
	for _, o := range s.mine {
		after, ok := s.table.Try(all, o.Place)
		if !ok {
			continue
		}
		all = after
		in := plan.Instance{Place: o.Place, GI: o.GI, Ready: o.CI >= 0, Managed: true}
		if o.CI >= 0 {
			in.CIs = []int{o.CI}
		}
		have = append(have, in)
	}
	return have, taken
}

func (p *page) share(in sharing.Instance) sharing.Share {
	profile, _ := p.table.Profile(in.ID) // it is of this table
	return sharing.Share{GPU: sharing.GPURef{UUID: p.gpu.ID}, Memory: profile.Memory, MIG: in}
}
