// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestTelemetry(t *testing.T) {
	g := gpu(0)
	l, _ := open4test(t, Options{}, g)
	ctx, id := t.Context(), g.id.uuid
	const none = noInstance
	g.lists = [][]resident{
		{{pid: 7, gi: 1, used: 5, known: true}, {pid: 7, gi: 2, used: 6, known: true}, {pid: 9, gi: none, ci: none}},
		{{pid: 7, gi: 1, used: 5, known: true}, {pid: 0, gi: none, used: 3, known: true}},
		{{pid: 9, gi: none, ci: none, used: 4, known: true, mps: true}},
	}
	g.times = []timeSample{{7, 10, 4}, {9, 50, 20}, {7, 30, 6}, {0, 5, 5}}
	want := Telemetry{
		Memory: g.mem, Listed: true, Timed: true,
		Residents: []Resident{{PID: 7, GI: 1, Used: 5, Known: true}, {PID: 7, GI: 2, Used: 6, Known: true}, {PID: 9, GI: -1, Used: 4, Known: true, MPS: true}},
		Activity:  map[int]Activity{7: {20, 5}, 9: {50, 20}},
	}
	got, err := l.Telemetry(ctx, id, time.Time{})
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	g.times = []timeSample{{7, 10, 101}}
	if got, err = l.Telemetry(ctx, id, time.Time{}); err != nil || got.Timed || got.Activity != nil {
		t.Errorf("an absurd share of time is told: %+v, %v", got, err)
	}
	g.mem.Used = g.mem.Total + 1
	if got, err = l.Telemetry(ctx, id, time.Time{}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("absurd memory is told: %+v, %v", got, err)
	}
	if in, err := l.InstanceMemory(ctx, id); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("instances of a door that has none: %v, %v", in, err)
	}
}
