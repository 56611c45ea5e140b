// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"math"
	"strings"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// DCGM's marks for "no value" (dcgm_structs.h): each kind of number has a blank, and from it on why there is none.
const (
	blankInt32 = 0x7ffffff0
	blankInt64 = 0x7ffffffffffffff0
	blankFloat = 140737488355328.0
)

// numberOf is a value as a number; told is false for one that is blank, that has an error, or that is none.
func numberOf(v *dcgm.FieldValue_v2) (n float64, told bool) {
	if v.Status != 0 {
		return 0, false
	}
	switch v.FieldType {
	case dcgm.DCGM_FT_DOUBLE:
		n = v.Float64()
		return n, n < blankFloat && !math.IsNaN(n) && !math.IsInf(n, 0)
	case dcgm.DCGM_FT_INT64:
		i := v.Int64()
		// Some fields are 32 bits wide within.
		narrow := i >= blankInt32 && i <= blankInt32+15
		return float64(i), i < blankInt64 && !narrow
	}
	return 0, false
}

func blankText(s string) bool { return s == "" || strings.HasPrefix(s, "<<<") }
