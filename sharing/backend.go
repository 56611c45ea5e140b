// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "strings"

// Backend is the code that enforces the cap of a share.
type Backend uint8

// The backends, strongest first. MPS and libkerf are equally strong; where a list has both, the first counts.
const (
	// BackendNone: nothing holds the share. It stands in no list.
	BackendNone Backend = iota
	// BackendDriver: the driver's own memory limits. It is part of every list: where the driver has limits they
	// are used.
	BackendDriver
	// BackendMPS: the limits of an MPS server's clients.
	BackendMPS
	// BackendLibkerf: a preloaded library that refuses what would exceed the share.
	BackendLibkerf
	// BackendReactive: watched, and acted on by OverCap.
	BackendReactive
)

// Backends are all that a list can have, strongest first.
func Backends() []Backend {
	return []Backend{BackendDriver, BackendMPS, BackendLibkerf, BackendReactive}
}

// LimitsTime reports whether the backend limits the compute of a grant to its percent.
func (b Backend) LimitsTime() bool { return b == BackendLibkerf || b == BackendMPS }

// String returns "driver", "mps", "libkerf", "reactive" or "none".
func (b Backend) String() string {
	switch b {
	case BackendDriver:
		return "driver"
	case BackendMPS:
		return "mps"
	case BackendLibkerf:
		return "libkerf"
	case BackendReactive:
		return "reactive"
	case BackendNone:
	}
	return "none"
}

// Level is what a share is worth that the backend holds.
func (b Backend) Level() Level {
	switch b {
	case BackendDriver:
		return LevelDriver
	case BackendMPS, BackendLibkerf:
		return LevelUserspace
	case BackendReactive:
		return LevelReactive
	case BackendNone:
	}
	return LevelNone
}

// ParseBackend reads the name of one of Backends; field names the input for the error, a *FieldError.
func ParseBackend(field, s string) (Backend, error) {
	var names []string
	for _, b := range Backends() {
		if b.String() == s {
			return b, nil
		}
		names = append(names, b.String())
	}
	return BackendNone, Invalid(field, s, "write one of "+strings.Join(names, ", "), "is not a backend of this version")
}
