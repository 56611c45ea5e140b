// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Bytes is an amount of GPU memory. The zero value means "none requested" in requests.
type Bytes uint64

// Binary multiples of a byte.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// Add returns b+c, or an error that wraps ErrInvalid if the sum does not fit in 64 bits.
func (b Bytes) Add(c Bytes) (Bytes, error) {
	s, carry := bits.Add64(uint64(b), uint64(c), 0)
	if carry != 0 {
		return 0, fmt.Errorf("%d + %d bytes overflows: %w", uint64(b), uint64(c), ErrInvalid)
	}
	return Bytes(s), nil
}

// Sub returns b-c, or an error that wraps ErrInvalid if c is larger than b.
func (b Bytes) Sub(c Bytes) (Bytes, error) {
	if c > b {
		return 0, fmt.Errorf("%d - %d bytes is below zero: %w", uint64(b), uint64(c), ErrInvalid)
	}
	return b - c, nil
}

// Mul returns b*n, or an error that wraps ErrInvalid if the product does not fit in 64 bits.
func (b Bytes) Mul(n uint64) (Bytes, error) {
	hi, lo := bits.Mul64(uint64(b), n)
	if hi != 0 {
		return 0, fmt.Errorf("%d bytes times %d overflows: %w", uint64(b), n, ErrInvalid)
	}
	return Bytes(lo), nil
}

// SubFloor returns b-c, or zero if c is larger. It is for free space on a GPU that shrank or went away while it had
// grants: free is then zero, never a huge number.
func (b Bytes) SubFloor(c Bytes) Bytes {
	if c > b {
		return 0
	}
	return b - c
}

// Share returns p percent of b, rounded down to a whole MiB, so that shares with a sum of 100% always fit. If p is
// above 100, it counts as 100.
func (b Bytes) Share(p Percent) Bytes {
	if p >= 100 {
		return b / MiB * MiB
	}
	hi, lo := bits.Mul64(uint64(b), uint64(p))
	q, _ := bits.Div64(hi, lo, 100)
	return Bytes(q) / MiB * MiB
}

// Percent is a share of one GPU's compute (or, over several GPUs, the sum of such shares). Zero means
// "none requested": compute is then shared fairly.
type Percent uint32

// FullGPU is the compute of one whole GPU.
const FullGPU Percent = 100

// ParsePercent reads a compute percent: a whole number from 1 to 100 per GPU, with or without a percent sign. The
// number of GPUs is unknown here, so the bound is that of MaxGPUs; Request.Validate checks the real one. The error is a
// *FieldError for field.
func ParsePercent(field, s string) (Percent, error) {
	number, _ := strings.CutSuffix(s, "%")
	n, problem := parseCount(number, int(FullGPU)*MaxGPUs)
	if problem != "" {
		return 0, Invalid(field, s, "write a whole number from 1 to 100 (per GPU), such as 25", "%s", problem)
	}
	return Percent(n), nil //nolint:gosec // parseCount bounds it
}

// String returns the share with a percent sign.
func (p Percent) String() string { return strconv.FormatUint(uint64(p), 10) + "%" }

// ParseGPUs reads a number of GPUs, 1 to MaxGPUs. field names the input for the error, a *FieldError.
func ParseGPUs(field, s string) (int, error) {
	n, problem := parseCount(s, MaxGPUs)
	if problem != "" {
		return 0, Invalid(field, s, gpusRemedy, "%s", problem)
	}
	return n, nil
}

// parseCount reads ASCII digits as a number from 1 to most. The problem is empty when s is one.
func parseCount(s string, most int) (n int, problem string) {
	number, rest := digits(s)
	switch {
	case s == "":
		return 0, "is empty"
	case s[0] == '-' && len(s) > 1:
		return 0, "is negative"
	case number == "" || rest != "":
		return 0, "is not a whole number"
	}
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n > most:
		return 0, "is more than " + strconv.Itoa(most)
	case n == 0:
		return 0, "is zero"
	}
	return n, ""
}

// Burst is how much memory a grant may use while no other grant needs it. The cap is its guaranteed and its burst
// memory together. It comes from a profile, never from a pod. The zero value is no burst; else one of the fields is
// set.
type Burst struct {
	// Memory is the total over the shares.
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

// String returns the burst as ParseBurst reads it, empty for none; an amount is for users and may be truncated.
func (b Burst) String() string {
	switch {
	case b.Percent != 0:
		return strconv.FormatUint(uint64(b.Percent), 10) + "%"
	case b.Memory != 0:
		return b.Memory.String()
	}
	return ""
}

// of is the cap of one of n shares with so much guaranteed memory, on a GPU with so much allocatable. It is 0 if that
// is not more than the guarantee.
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
