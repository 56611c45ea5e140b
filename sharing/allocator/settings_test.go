// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// What a pool says of a GPU is kept to, and told.
func TestSettings(t *testing.T) {
	full, room, whole, never := used(0, 40*sharing.GiB, 50), used(1, 20*sharing.GiB, 50), free(2, 80*sharing.GiB), free(3, 80*sharing.GiB)
	full.Sharers, full.MaxSharers = 2, 2
	room.Sharers, room.MaxSharers = 1, 2
	whole.Shut, never.NoWhole = "gives whole alone", "gives shared alone"
	gpus := []GPUState{full, room, whole, never}
	ten, all := sharing.Request{Memory: 10 * sharing.GiB, GPUs: 1}, sharing.Request{Kind: sharing.KindWhole, GPUs: 1}
	if p, err := Choose(gpus, ten); err != nil || indexes(gpus, p) != "1" {
		t.Errorf("a fraction: GPU %s, %v", indexes(gpus, p), err)
	}
	if p, err := Choose(gpus, all); err != nil || indexes(gpus, p) != "2" {
		t.Errorf("a whole GPU: GPU %s, %v", indexes(gpus, p), err)
	}
	_, err := Choose(gpus[:1], ten)
	if err == nil || !strings.Contains(err.Error(), "is shared by 2 already, the most that its pool allows (sharers)") {
		t.Errorf("one sharer too many: %v", err)
	}
	if _, err := Choose(gpus[3:], all); err == nil || !strings.Contains(err.Error(), "gives shared alone") {
		t.Errorf("none is given whole: %v", err)
	}
}
