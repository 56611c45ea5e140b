// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// A GPU that uses the system's memory is planned whole, and no share of it, with the cause and the remedy.
func TestSystemMemory(t *testing.T) {
	b := clusterStateOf(1, 0)
	s := statusOf(0, 0)
	s.GPUs = []gpunode.GPU{{UUID: uuid(0, 0), Model: "NVIDIA GB10", SystemMemory: true, FreePercent: 100,
		Health: "healthy", Levels: []string{"exclusive"}}}
	b.Report(nodeName(0), s)
	w := want(t, podOf("whole", whole(1)))
	v := b.Fit(w, nodeName(0), noon())
	if v.Reason != scheduler.Fits || !v.Plan[0].Placement[0].Whole || v.Plan[0].Placement[0].Memory != 0 {
		t.Errorf("a whole GPU: %+v", v)
	}
	for name, limits := range map[string]map[string]string{"memory": memory(10),
		"percent": {sharing.ResourcePercent: "25"}} {
		if v := b.Fit(want(t, podOf(name, limits)), nodeName(0), noon()); v.Reason == scheduler.Fits ||
			!strings.Contains(v.Text, sharing.NoShares) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
