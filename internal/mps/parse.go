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

// Status is what a daemon says of a server, see
// https://docs.nvidia.com/deploy/mps/latest/appendix-tools-and-interface-reference.html (get_server_status).
type Status string

// The statuses that Kerf acts on. A server takes clients only while it is Active.
const (
	Initializing Status = "INITIALIZING"
	Active       Status = "ACTIVE"
	Fault        Status = "FAULT"
)

// parseStatus reads a server's status: one word.
func parseStatus(answer string) (Status, error) {
	words := strings.Fields(answer)
	if len(words) != 1 {
		return "", unexpected(answer, "a status")
	}
	return Status(strings.ToUpper(words[0])), nil
}

// refusals are words with which the program says that it did not carry a command out. NVIDIA documents no answer.
func refusals() []string {
	return []string{"error", "fail", "invalid", "illegal", "unknown", "unrecognized", "unsupported", "not ", "cannot",
		"can't", "denied", "usage:"}
}

// carriedOut is for commands of which NVIDIA documents no answer. A text is an error only if it says so: programs may
// confirm what they did.
func carriedOut(answer string) error {
	text := strings.ToLower(answer)
	if slices.ContainsFunc(refusals(), func(word string) bool { return strings.Contains(text, word) }) {
		return unexpected(answer, "a confirmation")
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
