// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Compute says what becomes of GPU time that its owner does not use, where the preloaded library holds grants to their
// percent. MPS is always strict, and other backends share no time.
type Compute uint8

// The rules for compute.
const (
	// ComputeFair: it is lent, and given back when its owner asks (the default).
	ComputeFair Compute = iota
	// ComputeStrict: nobody gets it; a grant never has more than its percent.
	ComputeStrict
)

// String returns "fair" or "strict".
func (c Compute) String() string {
	switch c {
	case ComputeStrict:
		return "strict"
	case ComputeFair:
	}
	return "fair"
}

// ParseCompute reads "fair" or "strict"; field names the input for the error, a *sharing.FieldError.
func ParseCompute(field, s string) (Compute, error) {
	for _, c := range []Compute{ComputeFair, ComputeStrict} {
		if c.String() == s {
			return c, nil
		}
	}
	return ComputeFair, sharing.Invalid(field, s, "write strict or fair", "is not a rule for compute")
}

// parseComputeMode reads the compute modes that a pool may want.
func parseComputeMode(field, s string) (sharing.ComputeMode, error) {
	m, err := sharing.ParseComputeMode(field, s)
	if err != nil || m == sharing.ComputeModeProhibited {
		return sharing.ComputeModeAsIs, sharing.Invalid(field, s, "write default or exclusiveProcess", "is not a compute mode for a pool")
	}
	return m, nil
}

// compute checks what a pool says of its GPUs' compute.
func (c *checker) compute(path string, p Pool) {
	if p.Compute > ComputeStrict {
		c.bad(path+".compute", "", "use a Compute of this package", "is not a rule for compute")
	}
	if p.TimeSlice > sharing.TimeSliceLong {
		c.bad(path+".timeSlice", "", "use a TimeSlice of package sharing", "is not a time slice")
	}
	if p.MPSComputeMode > MPSComputeModeKeep {
		c.bad(path+".mpsComputeMode", "", "use an MPSComputeMode of this package", "is not a rule for the compute mode under MPS")
	}
	switch {
	case p.ComputeMode > sharing.ComputeModeExclusiveProcess:
		c.bad(path+".computeMode", "", "use ComputeModeDefault or ComputeModeExclusiveProcess", "is not a compute mode for a pool")
	case p.ComputeMode != sharing.ComputeModeAsIs && p.MPSComputeMode == MPSComputeModeManage && slices.Contains(p.Backends, sharing.BackendMPS):
		c.bad(path+".computeMode", p.ComputeMode.String(), "leave it out, or mps, or write mpsComputeMode: keep", "is set by MPS itself, which backends lists")
	case p.ComputeMode == sharing.ComputeModeExclusiveProcess && p.Mode != ModeWhole:
		c.bad(path+".computeMode", p.ComputeMode.String(), "write mode: whole too, or leave it out",
			"lets one process on each GPU, which then cannot be shared")
	}
}
