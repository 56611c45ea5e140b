// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/faults"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// hurt is a MIG instance on which a fault stands.
type hurt struct {
	gpu sharing.GPUID
	in  sharing.Instance
	told
}

// SetInstanceHealth tells the health of one of Kerf's MIG instances: a fault that is on it leaves the rest of its GPU
// alone. Nothing new is given of an instance that is not healthy, and who has it is told, as with a GPU.
func (r *Runtime) SetInstanceHealth(gpu sharing.GPUID, in sharing.Instance, h sharing.Health, reason string) {
	r.mu.Lock()
	r.hurt = slices.DeleteFunc(r.hurt, func(o hurt) bool { return o.gpu == gpu && o.in == in })
	if h != sharing.HealthOK {
		r.hurt = append(r.hurt, hurt{gpu, in, told{h, reason}})
	}
	id := sharing.PartID(gpu, in)
	if _, shared := r.ledger.GPU(id); shared {
		whole := r.told[gpu]
		r.setHealth(id, whole.health, whole.reason)
	}
	sentence := ""
	if h != sharing.HealthOK {
		sentence = "MIG instance " + string(id) + " is " + h.String() + ": " + reason
	}
	r.conditions.SetOf(conditions.Instance, string(id), sentence)
	r.mu.Unlock()
	r.opt.Audit.Health(id, h, reason)
	r.changed.announce()
}

// woundOf is the fault that stands on the instance of a fragment, if one does. It needs the lock.
func (r *Runtime) woundOf(f sharing.Fragment) (hurt, bool) {
	for _, o := range r.hurt {
		if sharing.PartID(o.gpu, o.in) == f.GPU || o.gpu == f.GPU && o.in.Overlaps(f.MIG) {
			return o, true
		}
	}
	return hurt{}, false
}

// hurtOn are the instances of a GPU on which a fault stands, as nobody can have them. It needs the lock.
func (r *Runtime) hurtOn(gpu sharing.GPUID) []mig.Granted {
	var out []mig.Granted
	for _, o := range r.hurt {
		if o.gpu == gpu {
			out = append(out, mig.Granted{Instance: o.in, Who: "a fault (" + o.reason + ")"})
		}
	}
	return out
}

// wounds are the faults of the instances that a grant has whole; those of shared ones are told as their own GPU's. It needs
// the lock.
func (r *Runtime) wounds(g ledger.Grant) []faults.Part {
	var out []faults.Part
	for _, f := range g.Claim.Placement {
		if o, is := r.woundOf(f); is && !f.MIG.None() {
			out = append(out, faults.Part{GPU: sharing.PartID(f.GPU, f.MIG), Health: o.health, Reason: o.reason})
		}
	}
	return out
}
