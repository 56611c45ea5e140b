// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scale is what a unit measures, and its factor to the base unit of that kind.
type scale struct {
	kind   string
	factor float64
}

// scales are those of each unit. The base units are seconds and MiB.
func scales() map[string]scale {
	return map[string]scale{
		"ns": {"time", 1e-9}, "µs": {"time", 1e-6}, "us": {"time", 1e-6}, "ms": {"time", 1e-3}, "s": {"time", 1},
		"KiB": {"memory", 1. / 1024}, "MiB": {"memory", 1}, "GiB": {"memory", 1024},
	}
}

// base is a value in the base unit of its kind.
func (v value) base() (float64, string) {
	if s, ok := scales()[v.Unit]; ok {
		return v.Value * s.factor, s.kind
	}
	return v.Value, v.Unit
}

func compare(a, b value) int {
	x, _ := a.base()
	y, _ := b.base()
	return cmp.Compare(x, y)
}

// String is the value for people, with two or three digits that count.
func (v value) String() string {
	x, kind := v.base()
	switch kind {
	case "time":
		for _, u := range []struct {
			name   string
			factor float64
		}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
			if math.Abs(x) >= u.factor*0.995 {
				return digits(x/u.factor) + " " + u.name
			}
		}
		return digits(x/1e-9) + " ns"
	case "memory":
		if x >= 1024 {
			return digits(x/1024) + " GiB"
		}
		return digits(x) + " MiB"
	case "%":
		return trim(fmt.Sprintf("%.2f", x)) + "%"
	case "ratio":
		return fmt.Sprintf("1 to %.2f", x)
	case "times":
		return fmt.Sprintf("%.2f", x)
	case "pods":
		return commas(fmt.Sprintf("%.0f", x))
	}
	return digits(x) + " " + kind
}

// digits is a number with three digits that count; a whole number of four or more gets commas.
func digits(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1000:
		return commas(strconv.FormatFloat(math.Round(x), 'f', 0, 64))
	case a >= 99.5:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 9.95:
		return trim(strconv.FormatFloat(x, 'f', 1, 64))
	}
	return trim(strconv.FormatFloat(x, 'f', 2, 64))
}

func trim(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") }

func commas(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
