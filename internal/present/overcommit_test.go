// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import "testing"

func TestOvercommitIsShown(t *testing.T) {
	t.Parallel()
	for percent, want := range map[int]string{0: "8GiB", 100: "8GiB", 125: "8GiB x1.25", 200: "8GiB x2", -5: "8GiB"} {
		if got := times("8GiB", percent); got != want {
			t.Errorf("memory at %d: %q, want %q", percent, got, want)
		}
	}
	for percent, want := range map[int]string{0: "120%", 100: "120%", 200: "120% of 200%"} {
		if got := ofPercent(120, percent); got != want {
			t.Errorf("compute at %d: %q, want %q", percent, got, want)
		}
	}
}
