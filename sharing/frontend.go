// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// FrontEnd is the API through which a pool advertises its GPUs to Kubernetes. It has no meaning for processes outside
// of pods.
type FrontEnd uint8

// The front ends.
const (
	// FrontEndDevicePlugin: extended resources of kubelet's device plugin API (the default).
	FrontEndDevicePlugin FrontEnd = iota
	// FrontEndDRA: devices of Dynamic Resource Allocation, which pods get by ResourceClaim.
	FrontEndDRA
)

// String returns "devicePlugin" or "dra".
func (f FrontEnd) String() string {
	if f == FrontEndDRA {
		return "dra"
	}
	return "devicePlugin"
}

// ParseFrontEnd reads "devicePlugin" or "dra"; field names the input for the error, a *sharing.FieldError.
func ParseFrontEnd(field, s string) (FrontEnd, error) {
	for _, f := range []FrontEnd{FrontEndDevicePlugin, FrontEndDRA} {
		if f.String() == s {
			return f, nil
		}
	}
	return FrontEndDevicePlugin, Invalid(field, s, "write devicePlugin or dra", "is not a front end")
}
