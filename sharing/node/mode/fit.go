// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mode

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
)

// fits reports whether a need has room once these GPUs, and those that switch already, have the mode that it needs.
func (s sight) fits(n Need, switched []sharing.GPUID) bool {
	switched = slices.Clone(switched)
	for id, c := range s.switching {
		if c.on == n.on() {
			switched = append(switched, id)
		}
	}
	w := &whatIf{
		sight: s, need: n, switched: switched,
		instances: map[sharing.GPURef][]mig.Granted{}, shares: map[sharing.GPURef]sharing.Placement{},
	}
	for _, req := range n.Requests {
		if req.Kind == sharing.KindMIG && !w.placeInstance(req) || req.Kind != sharing.KindMIG && !w.placeShares(req) {
			return false
		}
	}
	return true
}

// whatIf is the node as it would be.
type whatIf struct {
	sight
	need     Need
	switched []sharing.GPUID
	// instances and shares are what was placed so far.
	instances map[sharing.GPURef][]mig.Granted
	shares    map[sharing.GPURef]sharing.Placement
}

// placeInstance takes the instance that costs other requests least.
func (w *whatIf) placeInstance(req sharing.Request) bool {
	var best *mig.Candidate
	for _, v := range w.GPUs {
		id := v.GPU.UUID
		_, switching := w.switching[id]
		if v.GPU.Ref().IsInstance() || !allocator.Named(v.GPU, req).Fits() || !allocator.Open(v.GPU).Fits() ||
			len(w.shares[v.GPU.Ref()]) > 0 || !slices.Contains(w.switched, id) && (!v.GPU.MIG || switching) {
			continue
		}
		o := w.manager.Would(id, req.MIG, mig.AnyStart, slices.Concat(w.Granted(id), w.Faults(id),
			w.instances[v.GPU.Ref()]))
		if o.Detail == "" && (best == nil || o.Better(*best)) {
			best = &o
		}
	}
	if best == nil {
		return false
	}
	f := best.Share
	w.instances[f.GPU] = append(w.instances[f.GPU], mig.Granted{Instance: f.MIG, Who: w.need.Who})
	return true
}

// placeShares takes GPUs for shares, or whole ones.
func (w *whatIf) placeShares(req sharing.Request) bool {
	states := w.Free(req.Profile, w.need.But)
	for i := range states {
		s := &states[i]
		id := s.GPU.Ref()
		if s.GPU.MIG && slices.Contains(w.switched, id.UUID) {
			w.outOfMIG(s, req)
		}
		if len(w.instances[id]) > 0 {
			s.Shut, s.NoWhole = "is in MIG mode", "is in MIG mode"
		}
		for _, f := range w.shares[id] {
			s.InUse, s.ShareCount = true, s.ShareCount+1
			s.FreeMemory, s.FreePercent = s.FreeMemory.SubFloor(f.Memory), s.FreePercent-min(f.Percent, s.FreePercent)
			if f.Whole {
				s.FreeMemory, s.FreePercent = 0, 0
			}
		}
	}
	p, err := allocator.Choose(states, req)
	for _, f := range p {
		w.shares[f.GPU] = append(w.shares[f.GPU], f)
	}
	return err == nil
}

// outOfMIG makes s the view of a GPU that has left MIG mode. Its backends give what they gave before. If that is not
// known, level driver is assumed: the switch shows it.
func (w *whatIf) outOfMIG(s *allocator.GPUState, req sharing.Request) {
	s.GPU.MIG, s.Shut, s.NoWhole = false, "", ""
	s.FreeMemory, s.FreePercent = s.GPU.Bookable(), s.GPU.BookablePercent()
	list := w.Rules(s, req.Profile)
	rep, known := w.before[s.GPU.UUID]
	if !known {
		s.Levels = []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}
		return
	}
	c := choice.Choose(choice.On{List: list, Report: rep.But(w.need.But)})
	s.Levels, s.LevelReason = []sharing.Level{sharing.LevelExclusive, c.Level}, c.Reason
}
