// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/kerf-gpu/kerf/sharing"

// ManagedMemory says whether programs with a share of a GPU may allocate managed memory (cudaMallocManaged). NVIDIA's
// driver lists it in no process, so only libkerf, which charges it when it is allocated, counts it against a cap.
type ManagedMemory uint8

// The rules for managed memory.
const (
	// ManagedAllow: programs may allocate it (the default).
	ManagedAllow ManagedMemory = iota
	// ManagedReject: libkerf rejects it. Other backends cannot; the level's reason of their grants says so.
	ManagedReject
)

// String returns "allow" or "reject".
func (m ManagedMemory) String() string {
	switch m {
	case ManagedReject:
		return "reject"
	case ManagedAllow:
	}
	return "allow"
}

// ParseManagedMemory reads "allow" or "reject"; field names the input for the error, a *sharing.FieldError.
func ParseManagedMemory(field, s string) (ManagedMemory, error) {
	for _, m := range []ManagedMemory{ManagedAllow, ManagedReject} {
		if m.String() == s {
			return m, nil
		}
	}
	return ManagedAllow, sharing.Invalid(field, s, "write allow or reject", "is not a rule for managed memory")
}

// Caveat says what the enforcement level of a share leaves open because of managed memory; empty where nothing is.
func (m ManagedMemory) Caveat(b sharing.Backend) string {
	var why string
	switch b {
	case sharing.BackendDriver:
		why = "the driver's limit does not count managed memory, and the driver lists it in no process"
	case sharing.BackendMPS:
		why = "the limit of MPS does not count managed memory, and the driver lists it in no process"
	case sharing.BackendReactive:
		why = "the driver lists managed memory in no process, so the reactive backend does not see it"
	case sharing.BackendNone:
	case sharing.BackendLibkerf: // it charges managed memory when it is allocated, or rejects it
		return ""
	}
	if m != ManagedReject {
		return why
	}
	const only = "managedMemory: reject has no effect here, because only libkerf rejects managed memory"
	if why == "" {
		return only
	}
	return why + "; " + only
}

// CaveatAt is what the level of a share does not enforce because of managed memory. It is empty for levels that count
// all memory, and for an unknown level.
func (m ManagedMemory) CaveatAt(level sharing.Level, b sharing.Backend) string {
	switch level {
	case sharing.LevelReactive:
		b = sharing.BackendReactive // also where it stands in for a stronger backend
	case sharing.LevelNone:
		b = sharing.BackendNone
	case sharing.LevelUserspace, sharing.LevelDriver:
	case sharing.LevelUnknown, sharing.LevelHardware, sharing.LevelExclusive:
		return ""
	}
	return m.Caveat(b)
}
