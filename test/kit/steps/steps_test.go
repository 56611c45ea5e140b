// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// Each step of the plan is measured, and nothing else but the settings.
func TestEachStepIsMeasured(t *testing.T) {
	left := measures()
	delete(left, "settings")
	for _, s := range core.Steps() {
		if left[s.ID] == nil {
			t.Errorf("nothing measures %s", s.ID)
		}
		delete(left, s.ID)
	}
	if len(left) > 0 {
		t.Errorf("no step %v", left)
	}
}

func TestCounts(t *testing.T) {
	table, err := libkerf.Families()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"cuMemAlloc", "cuMemAlloc_v2", "cuMemAllocAsync_ptsz", "cuMemAllocHost_v2", "cuInit",
		"cuGetProcAddress_v2"}
	for name, want := range map[string]bool{
		"cuMemAlloc": true, "cuMemAlloc_v2": true, "cuMemAllocAsync": true, "cuMemAllocHost": false, "cuInit": false,
		"cuGetProcAddress": false, "cuNone": false,
	} {
		if got := counts(table, names, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestMetric(t *testing.T) {
	const text = "# HELP x y\nx{uuid=\"GPU-1\",a=\"b\"} 12.5\nx{uuid=\"GPU-2\"} 3\n"
	for uuid, want := range map[string]float64{"GPU-1": 12.5, "GPU-2": 3} {
		if got, ok := metric(text, "x", uuid); !ok || got != want {
			t.Errorf("%s: %g %t", uuid, got, ok)
		}
	}
	if _, ok := metric(text, "x", "GPU-3"); ok {
		t.Error("a GPU that is not there has a value")
	}
}

// The agents of the steps take their configs.
func TestConfigs(t *testing.T) {
	pools := []string{capsPool, crashPool, reactivePool}
	for _, policy := range []string{"strict", "fair"} {
		for _, backend := range []string{"driver", "libkerf", "mps"} {
			pools = append(pools, sharesPool(backend, policy))
		}
	}
	for _, pool := range pools {
		if _, err := config.Decode([]byte(bench.Config(pool))); err != nil {
			t.Errorf("%s: %v", pool, err)
		}
	}
}
