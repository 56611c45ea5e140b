// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestParsePIDs(t *testing.T) {
	for answer, want := range map[string][]int{
		"": nil, "\n": nil, "12\n": {12}, "30\n12\n12\n": {12, 30}, " 7 ": {7}, "2147483647": {2147483647},
		"0\n": {-1}, "-1": {-1}, "12 13": {-1}, "2147483648": {-1}, "12\nServer is not found\n": {-1},
		"Cannot find MPS control daemon process": {-1},
	} {
		got, err := parsePIDs(answer)
		if bad := slices.Equal(want, []int{-1}); bad != (err != nil) || !bad && !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", answer, got, err, want)
		}
	}
}

func TestParsePercent(t *testing.T) {
	for answer, want := range map[string]float64{
		"10.0\n": 10, "100": 100, "0.5": 0.5, "0": 0, "101": 0, "NaN": 0, "Inf": 0, "": 0, "10.0\n20.0": 0, "ten": 0,
	} {
		got, err := parsePercent(answer)
		if got != want || (err == nil) != (want > 0) || err != nil && !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("%q: %v, %v, want %v", answer, got, err, want)
		}
	}
}

func TestAmount(t *testing.T) {
	for b, want := range map[sharing.Bytes]string{
		sharing.MiB: "1M", 10 * sharing.GiB: "10240M", 10*sharing.GiB + sharing.MiB - 1: "10240M", sharing.MiB - 1: "",
		0: "",
	} {
		got, err := amount(b)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%v: %q, %v, want %q", b, got, err, want)
		}
	}
}

// Whatever the program prints is an answer of the form or an error, and what was read is what was printed.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"", "12\n30\n", "10.0\n", "-1", "\x00", "99999999999999999999", "1e2", "0x10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		if pids, err := parsePIDs(answer); err == nil {
			if !slices.IsSorted(pids) || len(pids) > 0 && pids[0] < 1 {
				t.Errorf("%q: pids %v", answer, pids)
			}
			for _, pid := range pids {
				if !strings.Contains(answer, fmt.Sprint(pid)) {
					t.Errorf("%q: %d is not in it", answer, pid)
				}
			}
		}
		if p, err := parsePercent(answer); err == nil && !(p > 0 && p <= 100) {
			t.Errorf("%q: %v percent", answer, p)
		}
		if s, err := parseStatus(answer); err == nil && !strings.EqualFold(string(s), strings.TrimSpace(answer)) {
			t.Errorf("%q: status %q", answer, s)
		}
	})
}

func TestParseStatus(t *testing.T) {
	for answer, want := range map[string]Status{"ACTIVE\n": Active, " initializing ": Initializing, "FAULT": Fault,
		"DRAINING": "DRAINING"} {
		if got, err := parseStatus(answer); err != nil || got != want {
			t.Errorf("%q: %q, %v", answer, got, err)
		}
	}
	for _, answer := range []string{"", "\n", "Server 1 is not found", "ACTIVE ACTIVE"} {
		if got, err := parseStatus(answer); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("%q: %q, %v", answer, got, err)
		}
	}
}

// A confirmation is no error; a refusal is one, whatever its case.
func TestCarriedOut(t *testing.T) {
	for _, answer := range []string{"", "\n", "0 1024M\n", "Set the limit of device 0 to 1024M",
		"Starting server for user 1000"} {
		if err := carriedOut(answer); err != nil {
			t.Errorf("%q: %v", answer, err)
		}
	}
	for _, answer := range []string{"Unknown command: x", "Server 1 is not found", "ERROR: x", "Failed to start server",
		"Invalid device", "Cannot find MPS control daemon process"} {
		if err := carriedOut(answer); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
