// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
)

// fits reports whether all that is needed has room once these GPUs, and those that change already, have the mode that it
// wants. It needs the lock.
func (r *Runtime) fits(n *need, turned []sharing.GPUID) bool {
	turned = slices.Clone(turned)
	for id, t := range r.turning {
		if t.on == n.on() {
			turned = append(turned, id)
		}
	}
	w := &whatIf{r: r, need: n, turned: turned, cut: map[sharing.GPUID][]mig.Granted{}, taken: map[sharing.GPUID]sharing.Placement{}}
	for _, req := range n.requests {
		if req.Kind == sharing.KindMIG && !w.place(req) || req.Kind != sharing.KindMIG && !w.choose(req) {
			return false
		}
	}
	return true
}

// whatIf are the books as they would be; its methods need the lock.
type whatIf struct {
	r      *Runtime
	need   *need
	turned []sharing.GPUID
	// cut are the instances, and taken the fragments, that were placed so far.
	cut   map[sharing.GPUID][]mig.Granted
	taken map[sharing.GPUID]sharing.Placement
}

// place finds a place for an instance, the one that takes least from others, and books it.
func (w *whatIf) place(req sharing.Request) bool {
	var best *mig.Offer
	for _, v := range w.r.ledger.GPUs() {
		id := v.GPU.UUID
		changes := slices.Contains(w.turned, id)
		if id.IsPart() || !allocator.Named(v.GPU, req).Fits() || !allocator.Open(v.GPU).Fits() || len(w.taken[id]) > 0 || !changes && (!v.GPU.MIG || w.r.turning[id] != nil) {
			continue
		}
		o := w.r.mig.Would(id, req.MIG, mig.AnyStart, slices.Concat(w.r.claimsOn(id), w.r.hurtOn(id), w.cut[id]))
		if o.Why == "" && (best == nil || betterCut(o, *best)) {
			best = &o
		}
	}
	if best == nil {
		return false
	}
	f := best.Fragment
	w.cut[f.GPU] = append(w.cut[f.GPU], mig.Granted{Instance: f.MIG, Who: w.need.who})
	return true
}

// choose finds GPUs for shares or whole ones, and books them.
func (w *whatIf) choose(req sharing.Request) bool {
	states := w.r.gpuStates(req.Profile, w.need.but)
	for i := range states {
		s := &states[i]
		id := s.GPU.UUID
		if s.GPU.MIG && slices.Contains(w.turned, id) {
			w.emptied(s, req)
		}
		if len(w.cut[id]) > 0 {
			s.Shut, s.NoWhole = "is cut", "is cut"
		}
		for _, f := range w.taken[id] {
			s.Held, s.Sharers = true, s.Sharers+1
			s.FreeMemory, s.FreePercent = s.FreeMemory.SubFloor(f.Memory), s.FreePercent-min(f.Percent, s.FreePercent)
			if f.Whole {
				s.FreeMemory, s.FreePercent = 0, 0
			}
		}
	}
	p, err := allocator.Choose(states, req)
	for _, f := range p {
		w.taken[f.GPU] = append(w.taken[f.GPU], f)
	}
	return err == nil
}

// emptied makes of a GPU in MIG mode what it is outside of it. How strongly it held shares before counts; where that is not
// known, it is found out.
func (w *whatIf) emptied(s *allocator.GPUState, req sharing.Request) {
	s.GPU.MIG, s.Shut, s.NoWhole = false, "", ""
	s.FreeMemory, s.FreePercent = s.GPU.Bookable(), s.GPU.BookablePercent()
	set := w.r.settingsOf(s.GPU)
	bySettings(s, set, 0)
	rep, known := w.r.plain[s.GPU.UUID]
	if !known {
		s.Levels = []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}
		return
	}
	c := choice.Choose(choice.On{List: w.r.config.BackendsOn(set, w.r.pool, req.Profile), Report: rep.But(w.need.but)})
	s.Levels, s.LevelWhy = []sharing.Level{sharing.LevelExclusive, c.Level}, c.Why
}

// levelsBefore are those that a GPU in MIG mode had outside of it; none where that is not known. It needs the lock.
func (r *Runtime) levelsBefore(gpu sharing.GPUID) (levels []sharing.Level, why string) {
	rep, known := r.plain[gpu]
	if !known {
		return nil, ""
	}
	c := choice.Choose(choice.On{List: r.listOn(r.gpu(gpu), ""), Report: rep})
	return []sharing.Level{sharing.LevelExclusive, c.Level}, c.Why
}
