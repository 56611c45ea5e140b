// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"math/bits"
)

// Bytes is an amount of GPU memory. The zero value means "none asked" in requests.
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

// SubFloor returns b-c, or zero if c is larger. It is for free space on a GPU that shrank or went away
// while pieces of it were held: free is then zero, never a huge number.
func (b Bytes) SubFloor(c Bytes) Bytes {
	if c > b {
		return 0
	}
	return b - c
}

// Share returns the part of b that p percent is, rounded down to a whole MiB, so that shares which sum to
// 100 % always fit. p above 100 counts as 100.
func (b Bytes) Share(p Percent) Bytes {
	if p >= 100 {
		return b / MiB * MiB
	}
	hi, lo := bits.Mul64(uint64(b), uint64(p))
	q, _ := bits.Div64(hi, lo, 100)
	return Bytes(q) / MiB * MiB
}

// Percent is a share of one GPU's compute (or, over several GPUs, the sum of such shares). Zero means
// "none asked": compute is then shared fairly.
type Percent uint32

// FullGPU is the compute of one whole GPU.
const FullGPU Percent = 100
