// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/kerf-gpu/kerf/sharing"

// Mode says which of Kerf's resources a pool's nodes advertise to Kubernetes. A stock scheduler counts each
// resource by itself and would add up what only fits apart, so that without kerf-scheduler a pool advertises
// one kind. It has no meaning for processes of their own.
type Mode uint8

// The modes.
const (
	// ModeAuto: fractions and whole GPUs (the default). With a stock scheduler a pod may then have to wait on
	// its node, and says so.
	ModeAuto Mode = iota
	// ModeShared: fractions alone.
	ModeShared
	// ModeWhole: whole GPUs alone.
	ModeWhole
)

// String returns "auto", "shared" or "whole".
func (m Mode) String() string {
	switch m {
	case ModeShared:
		return "shared"
	case ModeWhole:
		return "whole"
	case ModeAuto:
	}
	return "auto"
}

// Shared reports whether fractions are advertised.
func (m Mode) Shared() bool { return m != ModeWhole }

// Whole reports whether whole GPUs are advertised.
func (m Mode) Whole() bool { return m != ModeShared }

// ParseMode reads "auto", "shared" or "whole"; field names the input for the error, a *sharing.FieldError.
func ParseMode(field, s string) (Mode, error) {
	for _, m := range []Mode{ModeAuto, ModeShared, ModeWhole} {
		if m.String() == s {
			return m, nil
		}
	}
	return ModeAuto, sharing.Invalid(field, s, "write auto, shared or whole", "is not a pool's mode")
}
