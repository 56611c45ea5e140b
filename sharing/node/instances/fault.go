// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/faults"
)

// Fault is a MIG instance that is not healthy.
type Fault struct {
	GPU      sharing.GPUID
	Instance sharing.Instance
	Health   sharing.Health
	Reason   string
}

// Faults are those of a node.
type Faults []Fault

// With returns the faults after a report about the health of an instance.
func (f Faults) With(n Fault) Faults {
	out := slices.DeleteFunc(slices.Clone(f), func(o Fault) bool { return o.GPU == n.GPU && o.Instance == n.Instance })
	if n.Health != sharing.HealthOK {
		out = append(out, n)
	}
	return out
}

// Of is the fault of the instance that the share is, or is on; false if there is none.
func (f Faults) Of(part sharing.Share) (Fault, bool) {
	for _, o := range f {
		if o.Instance.On(o.GPU) == part.GPU || part.GPU == (sharing.GPURef{UUID: o.GPU}) &&
			o.Instance.Overlaps(part.MIG) {
			return o, true
		}
	}
	return Fault{}, false
}

// On are the instances of a GPU that no grant can have.
func (f Faults) On(gpu sharing.GPUID) []mig.Granted {
	var out []mig.Granted
	for _, o := range f {
		if o.GPU == gpu {
			out = append(out, mig.Granted{Instance: o.Instance, Who: "a fault (" + o.Reason + ")"})
		}
	}
	return out
}

// Parts are the faults of the whole instances of a placement. A shared instance has the health of a GPU.
func (f Faults) Parts(p sharing.Placement) []faults.Part {
	var out []faults.Part
	for _, part := range p {
		if o, is := f.Of(part); is && !part.MIG.None() {
			out = append(out, faults.Part{GPU: part.MIG.On(part.GPU.UUID), Health: o.Health, Reason: o.Reason})
		}
	}
	return out
}
