// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]sharing.Bytes{
		"1G": sharing.GiB, "900M": 900 * sharing.MiB, "4294967295G": 4294967295 * sharing.GiB,
		"0M": 0, "": 0, "G": 0, "1": 0, "1K": 0, "-1G": 0, "1.5G": 0, "4294967296G": 0, "1GB": 0,
	} {
		got, err := size(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestPercentage(t *testing.T) {
	for text, want := range map[string]string{"10": "10.0", "0.5": "0.5", "100": "100.0", "0": "", "101": "", "-1": "",
		"NaN": "", "x": ""} {
		got, err := percentage(text)
		if (err == nil) != (want != "") || err == nil && showPercentage(got) != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

func TestVisible(t *testing.T) {
	all := []device{{uuid: "GPU-aa"}, {uuid: "GPU-ab"}, {uuid: "GPU-b"}}
	for list, want := range map[string][]string{
		"":          nil,
		"0":         {"GPU-aa"},
		"2, 0":      {"GPU-b", "GPU-aa"},
		"GPU-ab,0":  {"GPU-ab", "GPU-aa"},
		"1,1,0":     {"GPU-ab"},
		"0,9,1":     {"GPU-aa"},
		"GPU-c,0":   nil,
		"-1":        nil,
		"GPU-b,2,0": {"GPU-b"},
	} {
		var got []string
		for _, d := range visible(all, list, true) {
			got = append(got, d.uuid)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", list, got, want)
		}
	}
	if got := visible(all, "", false); len(got) != 3 {
		t.Errorf("not set: %v", got)
	}
}
