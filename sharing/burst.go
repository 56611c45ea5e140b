// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"math/bits"
	"strconv"
	"strings"
)

// Burst is how much memory a grant may hold while nobody else claims it: the hard limit, its guaranteed memory
// and what it is lent together. It comes from a profile, never from a pod. The zero value is no burst; else one
// of the fields is set.
type Burst struct {
	// Memory is the total over the fragments.
	Memory Bytes
	// Percent is a percentage of the guaranteed memory, 101 to maxBurst.
	Percent uint32
}

// maxBurst bounds Burst.Percent: a hundred times the guarantee.
const maxBurst = 10_000

const burstRemedy = "write a size, such as 40GiB, or a percentage of the guaranteed memory above 100%, such as 200%"

// ParseBurst reads a size or a percentage. field names the input for the error, a *FieldError.
func ParseBurst(field, s string) (Burst, error) {
	number, percent := strings.CutSuffix(s, "%")
	if !percent {
		b, err := ParseSize(field, s)
		if err != nil {
			return Burst{}, err
		}
		return Burst{Memory: b}, nil
	}
	n, problem := parseCount(number, maxBurst)
	if problem == "" && n <= 100 {
		problem = "is not more than what is guaranteed"
	}
	if problem != "" {
		return Burst{}, Invalid(field, s, burstRemedy, "%s", problem)
	}
	return Burst{Percent: uint32(n)}, nil //nolint:gosec // parseCount bounds it
}

// String returns the burst as ParseBurst reads it, empty for none; a size is for people and may be cut.
func (b Burst) String() string {
	switch {
	case b.Percent != 0:
		return strconv.FormatUint(uint64(b.Percent), 10) + "%"
	case b.Memory != 0:
		return b.Memory.String()
	}
	return ""
}

// of is the hard limit of one of n fragments with so much guaranteed memory, on a GPU with so much usable: 0
// where that is no more than what is guaranteed.
func (b Burst) of(memory, usable Bytes, n int) Bytes {
	most := b.Memory
	switch {
	case n < 1:
		return 0
	case b.Percent != 0:
		most = usable
		if hi, lo := bits.Mul64(uint64(memory), uint64(b.Percent)); hi < 100 { // else the quotient is past 64 bits
			q, _ := bits.Div64(hi, lo, 100)
			most = Bytes(q) / MiB * MiB
		}
	default:
		most = most / Bytes(n) / MiB * MiB
	}
	if most = min(most, usable); most <= memory {
		return 0
	}
	return most
}
