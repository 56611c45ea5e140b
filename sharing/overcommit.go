// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"cmp"
	"math/bits"
	"strconv"
	"strings"
)

// Factor is the overcommit ratio of a GPU in hundredths: 125 grants five units for every four. A value of at most
// 100, also the zero value, means no overcommit.
type Factor uint16

// The maximum of a factor. Above twice the memory, no share would be reliable.
const (
	MaxMemoryFactor  Factor = 200
	MaxComputeFactor Factor = 500
)

// More reports whether more is booked than there is.
func (f Factor) More() bool { return f > 100 }

// Of is what is booked where there is so much: never more than the factor says, and never less than there is.
func (f Factor) Of(b Bytes) Bytes {
	hi, lo := bits.Mul64(uint64(b), uint64(f))
	if !f.More() || hi >= 100 { // past 64 bits, which no GPU has
		return b
	}
	q, _ := bits.Div64(hi, lo, 100)
	return max(b, Bytes(q)/MiB*MiB)
}

// String returns the factor as ParseFactor reads it: "1.25".
func (f Factor) String() string {
	f = max(f, 100)
	whole, rest := strconv.Itoa(int(f/100)), int(f%100)
	if rest == 0 {
		return whole
	}
	return strings.TrimRight(whole+"."+strconv.Itoa(100 + rest)[1:], "0")
}

// ParseFactor reads a number from 1 to most with at most two digits behind the point. field names the input for the
// error, a *FieldError.
func ParseFactor(field, s string, most Factor) (Factor, error) {
	number, rest, point := strings.Cut(s, ".")
	n, problem := parseCount(number, int(most/100))
	if cents, err := strconv.ParseUint((rest + "00")[:2], 10, 8); point && problem == "" {
		if n = n*100 + int(cents); err != nil || rest == "" || len(rest) > 2 {
			problem = "is not a number with at most two digits behind the point"
		} else if n > int(most) {
			problem = "is more than " + most.String()
		}
	} else {
		n *= 100
	}
	if problem != "" {
		return 0, Invalid(field, s, "write a number from 1 to "+most.String()+", such as 1.25", "%s", problem)
	}
	return Factor(n), nil //nolint:gosec // at most most
}

// Overcommit is how much more of a GPU is given in fractions than it has. It is nothing for whole GPUs, and for MIG
// instances and what they are divided into.
type Overcommit struct {
	// Memory lets the guarantees of the shares exceed the GPU's memory. The driver may then reject an allocation
	// below the cap. No share is larger than the GPU.
	Memory Factor `json:"memory,omitempty" yaml:"memory"`
	// Compute lets their percents add up to more than 100; each is then worth its part of the sum.
	Compute Factor `json:"compute,omitempty" yaml:"compute"`
}

// Or is o, and other where o says nothing.
func (o Overcommit) Or(other Overcommit) Overcommit {
	return Overcommit{Memory: cmp.Or(o.Memory, other.Memory), Compute: cmp.Or(o.Compute, other.Compute)}
}

// Plain is o with 0 for each factor that is none.
func (o Overcommit) Plain() Overcommit {
	if !o.Memory.More() {
		o.Memory = 0
	}
	if !o.Compute.More() {
		o.Compute = 0
	}
	return o
}

// Bookable is the total memory of shares: Usable, or more with overcommit.
func (g GPU) Bookable() Bytes {
	if g.indivisible() {
		return g.Usable()
	}
	return g.Overcommit.Memory.Of(g.Usable())
}

// BookablePercent is the total percent of shares: FullGPU, or more with overcommit.
func (g GPU) BookablePercent() Percent {
	if g.indivisible() {
		return FullGPU
	}
	return max(FullGPU, FullGPU*Percent(min(g.Overcommit.Compute, MaxComputeFactor))/100)
}

// Contested reports whether shares of g may have more memory together than there is. Then another share can take what
// one has not allocated yet.
func (g GPU) Contested() bool { return !g.indivisible() && g.Overcommit.Memory.More() }

func (g GPU) indivisible() bool { return g.MIG || g.Ref().IsInstance() }
