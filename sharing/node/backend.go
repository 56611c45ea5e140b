// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
)

// BackendState is what one backend can do for shares of a GPU.
type BackendState struct {
	Backend sharing.Backend
	// Listed is true when the pool lists it.
	Listed  bool
	Support choice.Support
}

// gpuStates is the allocator's view of the ledger for a request of that profile, where but has other answers of some
// backends for who asks; it needs the lock.
func (r *Runtime) gpuStates(profile string, but choice.Without) []allocator.GPUState {
	views := r.ledger.GPUs()
	mps, others := r.mixes()
	out := make([]allocator.GPUState, 0, len(views))
	for _, v := range views {
		s := allocator.GPUState{GPU: v.GPU, FreeMemory: v.FreeMemory, FreePercent: v.FreePercent, Lent: v.LentMemory, Held: v.Claims > 0}
		id := v.GPU.UUID
		set := r.settingsOf(v.GPU)
		list := r.settings.Config().BackendsOn(set, r.settings.Pool(), profile)
		levels, held := r.levels(v.GPU, list, but.Beside(mps[id], others[id]))
		s.Levels, s.LevelWhy = levels, held.Why
		if mps[id] && !backend.PropertiesOf(held.Backend).Served {
			s.Shut = "runs MPS for other grants, which cannot hold this one (" + s.LevelWhy + ")"
			s.Levels, held = r.levels(v.GPU, list, but.Beside(false, others[id])) // once those grants have ended
			s.LevelWhy = held.Why
		}
		bySettings(&s, set, v.Claims)
		r.modes.Narrow(&s)
		out = append(out, s)
	}
	return out
}

// levels are those that a grant on the GPU can have now with the backends of the list, strongest first, and why a
// share cannot be held more strongly, with what then holds it; it needs the lock.
func (r *Runtime) levels(g sharing.GPU, list []sharing.Backend, but choice.Without) ([]sharing.Level, choice.Choice) {
	if r.Driver.Get() == nil || g.MIG {
		return nil, choice.Choice{}
	}
	rep, ok := r.Driver.Get().Levels[g.UUID]
	if !ok {
		return nil, choice.Choice{}
	}
	c := choice.Choose(choice.On{List: list, Report: rep.But(but)})
	if g.UUID.IsPart() {
		return []sharing.Level{c.Level}, c
	}
	return []sharing.Level{sharing.LevelExclusive, c.Level}, c
}

// heldBy chooses what holds a placement. Where its GPUs have no backend in common, it may be held less strongly than
// a share of each of them would be: sharing.ErrUnsupported if that is less than demanded. It needs the lock.
func (r *Runtime) heldBy(req sharing.Request, p sharing.Placement, but choice.Without) (choice.Choice, error) {
	if req.Kind == sharing.KindMIG {
		return choice.Choice{Level: sharing.LevelHardware}, nil
	}
	var on []choice.On
	least := req.MinLevel
	mps, others := r.mixes()
	for _, f := range p {
		if f.Whole {
			continue
		}
		var rep choice.Report
		known := false
		if r.Driver.Get() != nil {
			rep, known = r.Driver.Get().Levels[f.GPU]
		}
		if !known {
			rep = choice.Unprobed("the agent has not probed GPU " + string(f.GPU))
		}
		set := r.settingsOf(r.gpu(f.GPU))
		least = max(least, sharing.LeastOfShare(req.MinLevel, set.MinLevel))
		on = append(on, choice.On{
			GPU: r.gpuName(f.GPU), List: r.settings.Config().BackendsOn(set, r.settings.Pool(), req.Profile), Report: rep.But(but.Beside(mps[f.GPU], others[f.GPU])),
		})
	}
	if len(on) == 0 {
		return choice.Choice{Level: sharing.LevelExclusive}, nil
	}
	c := choice.Choose(on...)
	if !c.Level.AtLeast(least) {
		return c, fmt.Errorf("the GPUs %v together can be held at level %s at most, %s demanded (%s): %w", gpuIDs(p), c.Level, least, c.Why, sharing.ErrUnsupported)
	}
	return c, nil
}

// gpuName is a GPU's index, or its UUID where it is not there; it needs the lock.
func (r *Runtime) gpuName(id sharing.GPUID) string {
	if v, ok := r.ledger.GPU(id); ok {
		return strconv.Itoa(v.GPU.Index)
	}
	return string(id)
}

// backendStates are what each backend can do for shares of the GPU; it needs the lock.
func (r *Runtime) backendStates(g sharing.GPU) []BackendState {
	if r.Driver.Get() == nil || g.MIG {
		return nil
	}
	rep, ok := r.Driver.Get().Levels[g.UUID]
	if !ok {
		return nil
	}
	list := r.listOn(g, "")
	var out []BackendState
	for _, b := range sharing.Backends() {
		out = append(out, BackendState{Backend: b, Listed: slices.Contains(list, b), Support: rep.Of(b)})
	}
	return out
}
