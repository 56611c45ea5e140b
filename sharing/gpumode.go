// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// TimeSlice is for how long one process's work runs on a GPU while another's waits. It has no effect on MIG instances.
type TimeSlice uint8

// The time slices. What each comes to in milliseconds is the driver's.
const (
	// TimeSliceAsIs: none is meant, and what there is stays.
	TimeSliceAsIs TimeSlice = iota
	// TimeSliceDefault is the driver's own choice.
	TimeSliceDefault
	// TimeSliceShort favours latency.
	TimeSliceShort
	// TimeSliceMedium is between the two.
	TimeSliceMedium
	// TimeSliceLong favours throughput.
	TimeSliceLong
)

// TimeSlices are those that a GPU can have.
func TimeSlices() []TimeSlice {
	return []TimeSlice{TimeSliceDefault, TimeSliceShort, TimeSliceMedium, TimeSliceLong}
}

// String returns the word that ParseTimeSlice reads, "" for TimeSliceAsIs.
func (t TimeSlice) String() string {
	switch t {
	case TimeSliceDefault:
		return "default"
	case TimeSliceShort:
		return "short"
	case TimeSliceMedium:
		return "medium"
	case TimeSliceLong:
		return "long"
	case TimeSliceAsIs:
	}
	return ""
}

// ParseTimeSlice reads "default", "short", "medium" or "long"; field names the input for the error, a *FieldError.
func ParseTimeSlice(field, s string) (TimeSlice, error) {
	for _, t := range TimeSlices() {
		if t.String() == s {
			return t, nil
		}
	}
	return TimeSliceAsIs, Invalid(field, s, "write default, short, medium or long", "is not a time slice")
}

// ComputeMode says which processes may have a context on a GPU, as NVML names it.
type ComputeMode uint8

// The compute modes.
const (
	// ComputeModeAsIs: none is meant, and what there is stays.
	ComputeModeAsIs ComputeMode = iota
	// ComputeModeDefault: any number of processes.
	ComputeModeDefault
	// ComputeModeExclusiveProcess: one process at a time.
	ComputeModeExclusiveProcess
	// ComputeModeProhibited: none.
	ComputeModeProhibited
)

// String returns the word that ParseComputeMode reads, "" for ComputeModeAsIs.
func (m ComputeMode) String() string {
	switch m {
	case ComputeModeDefault:
		return "default"
	case ComputeModeExclusiveProcess:
		return "exclusiveProcess"
	case ComputeModeProhibited:
		return "prohibited"
	case ComputeModeAsIs:
	}
	return ""
}

// ParseComputeMode reads "default", "exclusiveProcess" or "prohibited"; field names the input for the error, a
// *FieldError.
func ParseComputeMode(field, s string) (ComputeMode, error) {
	for _, m := range []ComputeMode{ComputeModeDefault, ComputeModeExclusiveProcess, ComputeModeProhibited} {
		if m.String() == s {
			return m, nil
		}
	}
	return ComputeModeAsIs, Invalid(field, s, "write default, exclusiveProcess or prohibited", "is not a compute mode")
}
