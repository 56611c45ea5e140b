// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// A GPU whose driver does not support memory queries is healthy, and its memory unknown. A library without the function
// is an error as before.
func TestSystemMemory(t *testing.T) {
	a, b := gpu(0), gpu(1)
	a.err, b.err = check("nvmlDeviceGetMemoryInfo", nvml.ERROR_NOT_SUPPORTED), absent("nvmlDeviceGetMemoryInfo")
	l, _ := open4test(t, Options{}, a, b)
	gpus, left, err := l.GPUs(t.Context())
	if err != nil || len(gpus) != 1 || len(left) != 1 {
		t.Fatal(gpus, left, err)
	}
	if g := gpus[0]; !g.SystemMemory || g.Memory != 0 || g.Health != sharing.HealthOK {
		t.Errorf("inventory %+v", g)
	}
	if m, err := l.Memory(t.Context(), a.id.uuid); err != nil || m != (Memory{System: true}) {
		t.Errorf("memory %+v, %v", m, err)
	}
	if err := l.Check(t.Context(), a.id.uuid); err != nil {
		t.Error(err)
	}
	if r, err := l.Telemetry(t.Context(), a.id.uuid, TelemetryRequest{}); err != nil || !r.Memory.System {
		t.Errorf("telemetry %+v, %v", r, err)
	}
}
