// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strings"
)

// PlacementValue is a placement as the scheduler writes it under PlacementAnnotation: the GPUs' UUIDs, separated by
// commas. A MIG instance adds "/1g.10gb@6" to its GPU's: the profile and its first memory slice. It is the text form of
// GPURef, for a MIG instance as for a share of one.
func PlacementValue(p Placement) string {
	parts := make([]string, 0, len(p))
	for _, f := range p {
		parts = append(parts, GPURef{UUID: f.GPU.UUID, Instance: f.Instance()}.String())
	}
	return strings.Join(parts, ",")
}

// Planned reads the placement that the scheduler wrote for a container. It is advice: Planned ignores what it cannot
// read, and a MIG instance among others.
func Planned(annotations map[string]string, container string) Advice {
	var a Advice
	for s := range strings.SplitSeq(annotations[PlacementAnnotation(container)], ",") {
		ref, err := ParseGPURef(strings.TrimSpace(s))
		if err != nil {
			return Advice{}
		}
		id, err := ParseGPUID(placementKey+container, string(ref.UUID))
		if err != nil || !a.MIG.None() || ref.IsInstance() && len(a.GPUs) > 0 {
			return Advice{}
		}
		a.GPUs, a.MIG = append(a.GPUs, id), ref.Instance
	}
	return a
}

// Refs are the GPUs that the advice names for a request of shares, or the shared MIG instance of one.
func (a Advice) Refs() []GPURef {
	out := make([]GPURef, len(a.GPUs))
	for i, id := range a.GPUs {
		out[i] = GPURef{UUID: id, Instance: a.MIG}
	}
	return out
}

// Instance is the MIG instance that the share is, or lies in.
func (f Share) Instance() InstanceRef {
	if !f.MIG.None() {
		return f.MIG.Ref()
	}
	return f.GPU.Instance
}

// InInstance reports whether the share lies in a MIG instance: all of it, or a part of a shared one.
func (f Share) InInstance() bool { return !f.Instance().None() }

// InstanceMismatch says why the shared MIG instance of that identity cannot answer the request, whatever is free of it.
// It is empty if the instance can, and for a physical GPU.
func (r Request) InstanceMismatch(id GPURef) string {
	switch {
	case !id.IsInstance():
		return ""
	case r.Kind == KindWhole:
		return "is a MIG instance that is shared, and no whole GPU"
	case r.Kind == KindMIG:
		return "is a MIG instance that is shared, and not given whole"
	case r.GPUs > 1:
		return "is a MIG instance, of which a program uses one at a time"
	case r.Percent > 0:
		return "is a MIG instance that is shared, of which memory is given and no percent of a GPU"
	}
	return ""
}
