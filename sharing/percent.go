// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strconv"
	"strings"
)

// ParsePercent reads a share of compute: a whole number from 1 to 100 per GPU, with or without a percent
// sign. How many GPUs there are is not known here, so the bound is that of MaxGPUs; Request.Validate
// checks the real one. field names the input for the error, a *FieldError.
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
