// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

func TestBlanksAreNoValues(t *testing.T) {
	value := func(kind uint, bits uint64, status int) *dcgm.FieldValue_v2 {
		v := &dcgm.FieldValue_v2{FieldType: kind, Status: status}
		binary.NativeEndian.PutUint64(v.Value[:], bits)
		return v
	}
	cases := map[string]struct {
		v     *dcgm.FieldValue_v2
		want  float64
		known bool
	}{
		"a whole number":       {value(dcgm.DCGM_FT_INT64, 42, 0), 42, true},
		"a real one":           {value(dcgm.DCGM_FT_DOUBLE, math.Float64bits(0.5), 0), 0.5, true},
		"with an error":        {value(dcgm.DCGM_FT_INT64, 42, -6), 0, false},
		"blank":                {value(dcgm.DCGM_FT_INT64, blankInt64, 0), 0, false},
		"not supported":        {value(dcgm.DCGM_FT_INT64, blankInt64+2, 0), 0, false},
		"blank of 32 bits":     {value(dcgm.DCGM_FT_INT64, blankInt32+3, 0), 0, false},
		"more than 32 bits":    {value(dcgm.DCGM_FT_INT64, 1<<33, 0), 1 << 33, true},
		"a blank real one":     {value(dcgm.DCGM_FT_DOUBLE, math.Float64bits(blankFloat), 0), 0, false},
		"not permitted":        {value(dcgm.DCGM_FT_DOUBLE, math.Float64bits(blankFloat+3), 0), 0, false},
		"no number":            {value(dcgm.DCGM_FT_DOUBLE, math.Float64bits(math.NaN()), 0), 0, false},
		"text is not a number": {value(dcgm.DCGM_FT_STRING, 7, 0), 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if n, known := numberOf(c.v); known != c.known || known && n != c.want {
				t.Errorf("%g, reported: %t", n, known)
			}
		})
	}
	for text, blank := range map[string]bool{"": true, "<<<NULL>>>": true, "<<<NOT_SUPPORTED>>>": true,
		"GPU-0": false} {
		if blankText(text) != blank {
			t.Errorf("%q: blank: %t", text, !blank)
		}
	}
}
