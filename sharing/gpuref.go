// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// GPURef identifies what a grant has memory of: a physical GPU, or a shared MIG instance of it. It is comparable, and
// its zero value names nothing.
type GPURef struct {
	// UUID is the physical GPU.
	UUID GPUID
	// Instance is the shared MIG instance of that GPU, the zero value for the GPU itself.
	Instance InstanceRef
}

// InstanceRef identifies a MIG instance on its GPU. It stays the same if the instance is created again. The zero value
// is none.
type InstanceRef struct {
	// Profile is the driver's name, such as "1g.10gb".
	Profile string
	// Start is the first memory slice, from 0.
	Start int
}

// refSeparator stands between a GPU's UUID and its instance in the text form of a GPURef.
const refSeparator = "/"

// maxUnits is more than the placement units of any GPU.
const maxUnits = 64

// None reports whether r is no instance.
func (r InstanceRef) None() bool { return r.Profile == "" }

// String returns "1g.10gb@6", and "" for none.
func (r InstanceRef) String() string {
	if r.None() {
		return ""
	}
	return r.Profile + "@" + strconv.Itoa(r.Start)
}

// parseInstanceRef reads what String returns for an instance.
func parseInstanceRef(s string) (InstanceRef, bool) {
	profile, start, ok := strings.Cut(s, "@")
	n, err := strconv.Atoi(start)
	if !ok || err != nil || n < 0 || n >= maxUnits || strconv.Itoa(n) != start || !migProfile.MatchString(profile) {
		return InstanceRef{}, false
	}
	return InstanceRef{Profile: profile, Start: n}, true
}

// Ref is the identity of an instance on its GPU. It does not need the instance's size.
func (i Instance) Ref() InstanceRef { return InstanceRef{Profile: i.Profile, Start: i.Start} }

// On is the identity of an instance of a GPU. For none, it is the GPU's.
func (i Instance) On(gpu GPUID) GPURef { return GPURef{UUID: gpu, Instance: i.Ref()} }

// GPU is the GPU or shared MIG instance of which nothing else is known.
func (r GPURef) GPU() GPU {
	return GPU{UUID: r.UUID, Part: Instance{Profile: r.Instance.Profile, Start: r.Instance.Start}}
}

// Device is the physical GPU of r.
func (r GPURef) Device() GPURef { return GPURef{UUID: r.UUID} }

// IsInstance reports whether r is a shared MIG instance.
func (r GPURef) IsInstance() bool { return !r.Instance.None() }

// String returns the only text form, which files, wire messages, labels and messages for people have: the UUID, and for
// an instance "/3g.40gb@4" behind it.
func (r GPURef) String() string {
	if !r.IsInstance() {
		return string(r.UUID)
	}
	return string(r.UUID) + refSeparator + r.Instance.String()
}

// Compare orders by text form.
func (r GPURef) Compare(other GPURef) int {
	if c := cmp.Compare(r.UUID, other.UUID); c != 0 || r.Instance == other.Instance {
		return c
	}
	return cmp.Compare(r.Instance.String(), other.Instance.String())
}

// ParseGPURef reads what String returns. It accepts any UUID; ParseGPUID checks one. Errors wrap ErrInvalid.
func ParseGPURef(s string) (GPURef, error) {
	uuid, at, is := strings.Cut(s, refSeparator)
	if !is {
		return GPURef{UUID: GPUID(s)}, nil
	}
	instance, ok := parseInstanceRef(at)
	if !ok || uuid == "" {
		return GPURef{}, fmt.Errorf("parse GPU or MIG instance %q: %w", s, ErrInvalid)
	}
	return GPURef{UUID: GPUID(uuid), Instance: instance}, nil
}
