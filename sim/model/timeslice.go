// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// TimeSlice is how long one process's work runs before another's gets its turn, as `nvidia-smi compute-policy` numbers
// it. Without time slices it has no effect.
type TimeSlice uint64

// The time slices of the driver.
const (
	TimeSliceDefault TimeSlice = iota
	TimeSliceShort
	TimeSliceMedium
	TimeSliceLong
)

// String returns the word that nvidia-smi shows.
func (t TimeSlice) String() string {
	switch t {
	case TimeSliceShort:
		return "Short"
	case TimeSliceMedium:
		return "Medium"
	case TimeSliceLong:
		return "Long"
	case TimeSliceDefault:
	}
	return "Default"
}

// of is how long a slice is where the default one has a length of d. The driver documents no lengths: these are
// assumptions in the documented order.
func (t TimeSlice) of(d time.Duration) time.Duration {
	switch t {
	case TimeSliceShort:
		return d / 2
	case TimeSliceMedium:
		return 2 * d
	case TimeSliceLong:
		return 4 * d
	case TimeSliceDefault:
	}
	return d
}
