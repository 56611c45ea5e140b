// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// A value with an error, of another type, or without a finite number is unknown. All others keep their number.
func FuzzValue(f *testing.F) {
	float := math.Float64bits
	for _, bits := range []uint64{0, 42, blankInt32, blankInt64, float(0.5), float(blankFloat), float(math.Inf(-1)),
		1 << 63} {
		f.Add(dcgm.DCGM_FT_INT64, bits, 0)
		f.Add(dcgm.DCGM_FT_DOUBLE, bits, 0)
	}
	f.Add(dcgm.DCGM_FT_STRING, uint64(7), -6)
	f.Fuzz(func(t *testing.T, kind uint, bits uint64, status int) {
		v := &dcgm.FieldValue_v2{FieldType: kind, Status: status}
		binary.NativeEndian.PutUint64(v.Value[:], bits)
		n, known := numberOf(v)
		switch {
		case !known:
			if i := int64(bits); kind == dcgm.DCGM_FT_INT64 && status == 0 && i < blankInt32 {
				t.Errorf("%d is unknown", i)
			}
		case status != 0 || math.IsNaN(n) || math.IsInf(n, 0):
			t.Errorf("kind %d, status %d: %g is known", kind, status, n)
		case kind == dcgm.DCGM_FT_INT64 && (n != float64(int64(bits)) || int64(bits) >= blankInt64):
			t.Errorf("%d is %g", int64(bits), n)
		case kind == dcgm.DCGM_FT_DOUBLE && (float(n) != bits || n >= blankFloat):
			t.Errorf("%g is %g", math.Float64frombits(bits), n)
		}
	})
}
