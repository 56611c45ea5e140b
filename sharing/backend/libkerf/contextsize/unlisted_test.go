// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextsize

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestSlack(t *testing.T) {
	for processes, want := range map[int]sharing.Bytes{
		-1: 32 * sharing.MiB, 0: 32 * sharing.MiB, 1: 40 * sharing.MiB, 50: 432 * sharing.MiB, 64: 544 * sharing.MiB,
		5000: 544 * sharing.MiB,
	} {
		if got := Slack(processes); got != want {
			t.Errorf("%d processes: %s, want %s", processes, got, want)
		}
	}
}
