// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// modes are what everybody on a GPU has to live with.
type modes struct {
	UUID        string `json:"uuid"`
	MIG         bool   `json:"mig"`
	ComputeMode uint64 `json:"compute_mode"`
	PowerLimit  uint64 `json:"power_limit_mw"`
}

// Root in a container changes neither its own cap nor the GPU of others: NVML does that for administrators alone.
func TestTamper(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	tamperer := e.create(one("tamperer", gibs(2), "id -u; gpuload --tamper; gpuload --json --alloc 3GiB; "+hold))
	tamperer.running()
	if l := tamperer.loads("main", 5)[4]; l.Error == nil {
		t.Errorf("past its cap: %v", l)
	}
	log := tamperer.logs("main")
	if !strings.HasPrefix(log, "0\n") {
		t.Errorf("it is not root: %q", log)
	}
	got := map[string]*int{}
	for line := range strings.Lines(log) {
		var said struct {
			Call   string `json:"call"`
			Result *int   `json:"result"`
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Call != "" {
			got[said.Call] = said.Result
		}
	}
	const noPermission = 4 // NVML_ERROR_NO_PERMISSION
	for _, call := range []string{"power limit", "compute mode", "MIG mode"} {
		if r := got[call]; r == nil || *r != noPermission {
			t.Errorf("%s: %v, want the refusal %d; it said %q", call, r, noPermission, log)
		}
	}
	if r := got["memory limit"]; r != nil && *r != noPermission { // nil: it sees no cgroup v2 to name
		t.Errorf("its own memory limit: %d, want the refusal %d", *r, noPermission)
	}
	gpu := e.grantOf(tamperer, "main").Shares[0].GPU
	if caps := tamperer.caps("main"); caps[gpu] != 2*gib {
		t.Errorf("the driver holds %v for it, want 2 GiB", caps)
	}
	for _, g := range decode[[]modes](t, e.node.gpusim(t, "gpus", "-o", "json")) {
		if d := cmp.Diff(modes{UUID: g.UUID, PowerLimit: g.PowerLimit}, g); g.UUID == gpu && d != "" ||
			g.PowerLimit == 200000 {
			t.Errorf("GPU %s (-was +is):\n%s", g.UUID, d)
		}
	}
}
