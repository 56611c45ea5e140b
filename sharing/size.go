// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"math/bits"
	"strconv"
	"strings"
)

const sizeRemedy = "write a number with a unit, such as 10GiB"

// sizeUnits are the units that ParseBytes knows, binary ones as Kubernetes and people write them, and the
// decimal ones of SI. Case counts: Kubernetes reads "m" as milli, so a lower case unit would be a guess.
func sizeUnit(s string) (Bytes, bool) {
	switch s {
	case "", "B":
		return 1, true
	case "KiB", "Ki":
		return KiB, true
	case "MiB", "Mi":
		return MiB, true
	case "GiB", "Gi":
		return GiB, true
	case "TiB", "Ti":
		return TiB, true
	case "KB", "K", "kB", "k":
		return 1e3, true
	case "MB", "M":
		return 1e6, true
	case "GB", "G":
		return 1e9, true
	case "TB", "T":
		return 1e12, true
	}
	return 0, false
}

// maxFraction is the number of decimals that ParseBytes reads; 10^18 still fits in 64 bits.
const maxFraction = 18

// ParseBytes reads an amount of memory: digits, at most one decimal point between digits, and a unit. Units are none or
// B, KiB to TiB (also without the B), and KB to TB and K to T, which are powers of 1000. A fraction must give whole
// bytes. The error is a *FieldError for field. Zero is an amount; use ParseSize to reject it.
func ParseBytes(field, s string) (Bytes, error) {
	bad := func(problem string) (Bytes, error) { return 0, Invalid(field, s, sizeRemedy, "%s", problem) }
	switch {
	case s == "":
		return bad("is empty")
	case s[0] == '-':
		return bad("is negative")
	case s[0] == '+':
		return bad("has a sign")
	case strings.ContainsAny(s, " \t\r\n"):
		return bad("has a space in it")
	}
	whole, rest := digits(s)
	if whole == "" {
		return bad("is not a size")
	}
	var frac string
	if strings.HasPrefix(rest, ".") {
		if frac, rest = digits(rest[1:]); frac == "" {
			return bad("is not a size")
		}
		frac = strings.TrimRight(frac, "0")
	}
	unit, ok := sizeUnit(rest)
	if !ok {
		return bad("has an unknown unit " + strconv.Quote(shorten(rest)))
	}
	n, err := strconv.ParseUint(whole, 10, 64)
	if err != nil {
		return bad("is too large")
	}
	b, err := unit.Mul(n)
	if err != nil {
		return bad("is too large")
	}
	part, exact := fraction(frac, unit)
	if !exact {
		return bad("is not a whole number of bytes")
	}
	if b, err = b.Add(part); err != nil {
		return bad("is too large")
	}
	return b, nil
}

// ParseSize is ParseBytes without zero.
func ParseSize(field, s string) (Bytes, error) {
	b, err := ParseBytes(field, s)
	if err == nil && b == 0 {
		return 0, Invalid(field, s, sizeRemedy, "is zero")
	}
	return b, err
}

// digits splits s after its leading ASCII digits.
func digits(s string) (head, rest string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// fraction returns 0.digits of unit, and whether that is a whole number of bytes.
func fraction(digits string, unit Bytes) (Bytes, bool) {
	if digits == "" {
		return 0, true
	}
	if len(digits) > maxFraction {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, false
	}
	scale := uint64(1)
	for range digits {
		scale *= 10
	}
	hi, lo := bits.Mul64(n, uint64(unit))
	q, r := bits.Div64(hi, lo, scale) // hi < scale: n < scale and every unit is below 2^64
	return Bytes(q), r == 0
}

// String returns the amount for people, in the largest binary unit that it reaches. Up to two decimals are exact
// (10GiB, 1.5GiB, 79.25GiB). An amount that needs more is truncated to one decimal, never rounded up, so that free
// memory is not overstated. It keeps that decimal even when it is 0 (10.0GiB is a little more than 10GiB).
func (b Bytes) String() string {
	unit, name := Bytes(1), "B"
	for _, u := range []struct {
		size Bytes
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size {
			unit, name = u.size, u.name
			break
		}
	}
	whole, rest := uint64(b/unit), uint64(b%unit)
	s := strconv.FormatUint(whole, 10)
	switch {
	case rest == 0:
	case rest*10%uint64(unit) != 0 && rest*100%uint64(unit) == 0:
		s += "." + strconv.FormatUint(100+rest*100/uint64(unit), 10)[1:]
	default:
		s += "." + strconv.FormatUint(rest*10/uint64(unit), 10)
	}
	return s + name
}
