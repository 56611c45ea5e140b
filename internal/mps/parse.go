// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// parsePIDs reads an answer that is one process id a line, or nothing.
func parsePIDs(answer string) ([]int, error) {
	var pids []int
	for line := range strings.Lines(answer) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		n, err := strconv.ParseUint(line, 10, 31)
		if err != nil || n == 0 {
			return nil, unexpected(answer, "process ids")
		}
		pids = append(pids, int(n)) // #nosec G115 -- 31 bits
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// parsePercent reads an answer that is a share of the threads, such as 12.5.
func parsePercent(answer string) (float64, error) {
	p, err := strconv.ParseFloat(strings.TrimSpace(answer), 64)
	if err != nil || math.IsNaN(p) || p <= 0 || p > 100 {
		return 0, unexpected(answer, "a percentage")
	}
	return p, nil
}

// silent is for what answers with nothing when it is done: any word is a refusal.
func silent(answer string) error {
	if strings.TrimSpace(answer) != "" {
		return unexpected(answer, "nothing")
	}
	return nil
}

func unexpected(answer, want string) error {
	return fmt.Errorf("it answers %q instead of %s: %w", shorten(answer), want, sharing.ErrUnavailable)
}

// amount writes a limit in the form that the program takes: whole MiB, rounded down, so that it is never above what
// was granted. It is sharing.ErrInvalid below one MiB.
func amount(b sharing.Bytes) (string, error) {
	if b < sharing.MiB {
		return "", sharing.Invalid("memory", b.String(), "take at least 1MiB", "is too little for a limit of MPS")
	}
	return strconv.FormatUint(uint64(b/sharing.MiB), 10) + "M", nil
}
