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
	// ModeAuto: fractions, whole GPUs, and MIG instances (the default); idle GPUs go in and out of MIG mode as demand asks,
	// see Pool.MIGOnDemand. With a stock scheduler a pod may then have to wait on its node, and says so.
	ModeAuto Mode = iota
	// ModeShared: fractions alone.
	ModeShared
	// ModeWhole: whole GPUs alone.
	ModeWhole
	// ModeMIG: MIG instances alone. GPUs that can do MIG are put in MIG mode where no layout says otherwise.
	ModeMIG
)

// String returns "auto", "shared", "whole" or "mig".
func (m Mode) String() string {
	switch m {
	case ModeShared:
		return "shared"
	case ModeWhole:
		return "whole"
	case ModeMIG:
		return "mig"
	case ModeAuto:
	}
	return "auto"
}

// Shared reports whether fractions are advertised.
func (m Mode) Shared() bool { return m == ModeAuto || m == ModeShared }

// Whole reports whether whole GPUs are advertised.
func (m Mode) Whole() bool { return m == ModeAuto || m == ModeWhole }

// MIG reports whether MIG instances are advertised.
func (m Mode) MIG() bool { return m == ModeAuto || m == ModeMIG }

// ParseMode reads "auto", "shared", "whole" or "mig"; field names the input for the error, a *sharing.FieldError.
func ParseMode(field, s string) (Mode, error) {
	for _, m := range []Mode{ModeAuto, ModeShared, ModeWhole, ModeMIG} {
		if m.String() == s {
			return m, nil
		}
	}
	return ModeAuto, sharing.Invalid(field, s, "write auto, shared, whole or mig", "is not a pool's mode")
}
