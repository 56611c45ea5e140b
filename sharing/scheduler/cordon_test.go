// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// A GPU that is cordoned is not planned on, whether its agent says so or the administrator's word was read before.
func TestCordonedGPU(t *testing.T) {
	b := clusterStateOf(1, 2)
	s := statusOf(0, 2)
	s.GPUs[0].Cordoned = "fan"
	b.Report(nodeName(0), s)
	w := want(t, podOf("p", memory(10)))
	if v := b.Fit(w, nodeName(0), noon()); v.Reason != scheduler.Fits || v.Plan[0].Placement[0].GPU.String() != uuid(0,
		1) {
		t.Errorf("verdict %+v", v)
	}
	s = statusOf(0, 2)
	s.Cordon(gpunode.Spec{CordonedGPUs: []gpunode.Cordon{{UUID: uuid(0, 0), Reason: "fan"}, {UUID: uuid(0, 1)},
		{UUID: "GPU-other"}}})
	b.Report(nodeName(0), s)
	if v := b.Fit(w, nodeName(0), noon()); v.Reason != scheduler.Unhealthy ||
		!strings.Contains(v.Text, "GPUs cordoned: fan") {
		t.Errorf("verdict %+v", v)
	}
}
