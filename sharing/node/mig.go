// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
)

// MIG is the MIG manager.
type MIG interface {
	instances.Manager
	mode.Manager
}

// Instances are the MIG instances of grants.
func (r *Runtime) Instances() *instances.Reconciler { return r.instances }

// SetMIG tells what keeps the GPUs' MIG instances, from now on; nil where nothing does.
func (r *Runtime) SetMIG(m MIG) {
	r.mu.Lock()
	r.instances.SetManager(m)
	r.modes.SetManager(m)
	r.mu.Unlock()
	r.changed.announce()
}

// chooseInstance needs the lock.
func (r *Runtime) chooseInstance(req sharing.Request, advice sharing.Advice) (sharing.Placement, error) {
	var gpus []instances.Candidate
	for _, v := range r.ledger.GPUs() {
		if id := v.GPU.UUID; !id.IsPart() {
			gpus = append(gpus, instances.Candidate{
				GPU: v.GPU, Turns: r.modes.Turns(id), Switching: r.modes.Switching(id), Taken: append(r.claimsOn(id), r.Health.Unavailable(id)...),
			})
		}
	}
	p, reason, err := instances.Choose(r.instances.Manager(), gpus, req, advice)
	if err != nil {
		r.opt.Observer.MIGRefused(string(reason))
	}
	return p, err
}

// hardened is a request for memory that only the hardware may hold, as one for the smallest MIG instance that has it,
// where the node cuts GPUs; any other stays as it is. It needs the lock.
func (r *Runtime) hardened(req sharing.Request) sharing.Request {
	gives := func(v ledger.View) bool { return v.GPU.MIG || r.modes.Turns(v.GPU.UUID) }
	hard := instances.Hardened(req)
	if hard.Kind == req.Kind || r.instances.Manager() == nil || !slices.ContainsFunc(r.ledger.GPUs(), gives) {
		return req
	}
	return hard
}

// hardenedAll needs the lock.
func (r *Runtime) hardenedAll(list []sharing.Request) []sharing.Request {
	out := make([]sharing.Request, len(list))
	for i, req := range list {
		out[i] = r.hardened(req)
	}
	return out
}

// instanceOf is the MIG instance that the fragment is or is a share of, none where it is not known now. It needs the lock.
func (r *Runtime) instanceOf(f sharing.Fragment) sharing.Instance {
	if !f.GPU.IsPart() {
		return f.MIG
	}
	v, _ := r.ledger.GPU(f.GPU)
	return v.GPU.Part
}

// levelsOf are the levels that a claim can have on a healthy GPU that is cut so, and why a share cannot have a stronger one; it
// needs the lock.
func (r *Runtime) levelsOf(g sharing.GPU, cut mig.State) (levels []sharing.Level, why string) {
	if g.MIG && cut.On && cut.Shared {
		return nil, "" // its instances have levels of their own
	}
	if g.MIG && cut.On && cut.Fixed && len(cut.Most) == 0 {
		return nil, "" // it has no instance and gets none
	}
	if g.MIG && cut.On && !cut.Turns {
		return []sharing.Level{sharing.LevelHardware}, ""
	}
	levels, by := r.levels(g, r.listOn(g, ""), nil)
	why = by.Why
	if g.MIG { // and demand may change that: it gives what it gave before, too
		before, why := r.levelsBefore(g)
		return append([]sharing.Level{sharing.LevelHardware}, before...), why
	}
	return levels, why
}

// levelsBefore are those that a GPU in MIG mode had outside of it; none where that is not known. It needs the lock.
func (r *Runtime) levelsBefore(g sharing.GPU) (levels []sharing.Level, why string) {
	rep, known := r.modes.Before(g.UUID)
	if !known {
		return nil, ""
	}
	c := choice.Choose(choice.On{List: r.listOn(g, ""), Report: rep})
	return []sharing.Level{sharing.LevelExclusive, c.Level}, c.Why
}

// ClaimsOn are the claims on a GPU. While a container runtime has not told yet what runs, it is sharing.ErrUnavailable:
// a container that is not known yet may use the GPU.
func (r *Runtime) ClaimsOn(gpu sharing.GPUID) ([]mig.Granted, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.Recovery.ContainersKnown() {
		return nil, fmt.Errorf("the container runtime has not told yet what runs: %w", sharing.ErrUnavailable)
	}
	return r.claimsOn(gpu), nil
}

// claimsOn needs the lock.
func (r *Runtime) claimsOn(gpu sharing.GPUID) []mig.Granted {
	var out []mig.Granted
	for _, g := range r.ledger.Grants() {
		for _, f := range g.Claim.Placement {
			if f.GPU.Device() != gpu {
				continue
			}
			one := mig.Granted{Instance: r.instanceOf(f), Who: instances.Holder(g.Claim)}
			if f.GPU.IsPart() {
				one.Part = f.GPU
			}
			out = append(out, one)
		}
	}
	return out
}

// PartsInUse are the ids of the shared instances of a GPU that claims have shares of.
func (r *Runtime) PartsInUse(gpu sharing.GPUID) []sharing.GPUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []sharing.GPUID
	for _, one := range r.claimsOn(gpu) {
		if one.Part != "" {
			out = append(out, one.Part)
		}
	}
	return out
}

// PendingCuts says whose instances are being created, and which GPUs switch their MIG mode for whom. An instance whose last
// attempt failed is not among them: its container is told the error.
func (r *Runtime) PendingCuts() []string { return append(r.modes.Pending(), r.instances.Pending()...) }
