// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"testing"
)

func TestGPUModesReadBack(t *testing.T) {
	for _, s := range TimeSlices() {
		if got, err := ParseTimeSlice("f", s.String()); err != nil || got != s {
			t.Errorf("%q reads as %v, %v", s, got, err)
		}
	}
	for _, m := range []ComputeMode{ComputeModeDefault, ComputeModeExclusiveProcess, ComputeModeProhibited} {
		if got, err := ParseComputeMode("f", m.String()); err != nil || got != m {
			t.Errorf("%q reads as %v, %v", m, got, err)
		}
	}
	for _, bad := range []string{"", "Default", "exclusive_process", "fast"} {
		if got, err := ParseTimeSlice("f", bad); !errors.Is(err, ErrInvalid) || got != TimeSliceAsIs {
			t.Errorf("%q is time slice %v, %v", bad, got, err)
		}
		if got, err := ParseComputeMode("f", bad); !errors.Is(err, ErrInvalid) || got != ComputeModeAsIs {
			t.Errorf("%q is compute mode %v, %v", bad, got, err)
		}
	}
}
