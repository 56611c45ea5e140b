// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestReadingOfWhatTheDriverTells(t *testing.T) {
	r := readingOf(nvml.Telemetry{
		Memory: nvml.Memory{Total: 80 * sharing.GiB, Used: 12 * sharing.GiB, Free: 67 * sharing.GiB,
			Reserved: sharing.GiB},
		Sensors: map[nvml.Sensor]uint64{nvml.SensorBusy: 80, nvml.SensorPower: 350_500, nvml.SensorEnergy: 7,
			nvml.SensorEncoder: 30}, Listed: true, Timed: true,
		Residents: []nvml.Resident{{PID: 7, GI: 1, Used: 5, Known: true}, {PID: 7, GI: 2, Used: 6, Known: true},
			{PID: 9, GI: -1}},
		Activity: map[int]nvml.Activity{7: {SM: 50, Memory: 20, Encoder: 30}},
	}, elsewhere{
		better: map[collect.Field]float64{collect.FieldEnergy: 8, collect.FieldProfTensor: 0.5},
		rest:   map[collect.Field]float64{collect.FieldBusy: 10, collect.FieldMemoryBusy: 70},
	}, nil)
	fields := map[collect.Field]float64{
		collect.FieldMemoryTotal: 81920, collect.FieldMemoryUsed: 12288, collect.FieldMemoryFree: 68608,
		collect.FieldMemoryReserved: 1024,
		collect.FieldBusy:           80, collect.FieldPower: 350.5, collect.FieldEnergy: 8, collect.FieldEncoder: 30,
		collect.FieldMemoryBusy: 70,
		collect.FieldProfTensor: 0.5,
	}
	device := attribution.Device{
		Memory: attribution.Known(12 * sharing.GiB), SM: attribution.Known(attribution.Ratio(0.8)),
		DRAM: attribution.Known(attribution.Ratio(0.7)), Encoder: attribution.Known(attribution.Ratio(0.3)),
		Listed: true,
		Timed:  true,
		Processes: []attribution.Process{
			{PID: 7, GI: 1, Memory: attribution.Known(sharing.Bytes(5)), SM: 0.5, DRAM: 0.2, Encoder: 0.3},
			{PID: 7, GI: 2, Memory: attribution.Known(sharing.Bytes(6))}, {PID: 9, GI: attribution.NoInstance},
		},
	}
	if d := cmp.Diff(fields, r.Fields) + cmp.Diff(device, r.Device); d != "" {
		t.Error(d)
	}
}

// The processes of a reading are those of the reading before, in the same memory, as long as nothing of them changes.
// Published readings stay as they were.
func TestProcessesThatAreAsBefore(t *testing.T) {
	alike := func(a, b []attribution.Process) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
	telemetry := nvml.Telemetry{
		Residents: []nvml.Resident{{PID: 7, GI: 1, Used: 5, Known: true}, {PID: 7, GI: 2, Used: 6, Known: true},
			{PID: 9, GI: -1, Used: 7, Known: true}},
		Activity: map[int]nvml.Activity{7: {SM: 50}, 9: {SM: 20}},
	}
	first := processesOf(telemetry, nil)
	if got := processesOf(telemetry, first); !alike(got, first) || len(got) != 3 {
		t.Errorf("of the same: %+v", got)
	}
	kept := slices.Clone(first)
	for name, change := range map[string]func(*nvml.Telemetry){
		"memory":   func(t *nvml.Telemetry) { t.Residents[1].Used++ },
		"unknown":  func(t *nvml.Telemetry) { t.Residents[0].Known = false },
		"activity": func(t *nvml.Telemetry) { t.Activity = map[int]nvml.Activity{7: {SM: 50}, 9: {SM: 21}} },
		"first":    func(t *nvml.Telemetry) { t.Residents = t.Residents[1:] },
		"last":     func(t *nvml.Telemetry) { t.Residents = t.Residents[:2] },
		"one more": func(t *nvml.Telemetry) { t.Residents = append(t.Residents, nvml.Resident{PID: 10, GI: -1}) },
		"none":     func(t *nvml.Telemetry) { t.Residents = nil },
	} {
		now := telemetry
		now.Residents = slices.Clone(telemetry.Residents)
		change(&now)
		got := processesOf(now, first)
		if d := cmp.Diff(processesOf(now, nil), got, cmpopts.EquateEmpty()); d != "" || len(got) != len(now.Residents) {
			t.Errorf("%s (-of nothing before +got):\n%s", name, d)
		}
		if got = append(got, attribution.Process{PID: 11}); cmp.Diff(kept, first) != "" {
			t.Errorf("%s: what was reported before is now %+v, with %+v", name, first, got)
		}
	}
}

// A driver that was in use and does not come back needs a new start, but not while the agent keeps it closed.
func TestStuck(t *testing.T) {
	s, away := NewNVML(nil, nil, slog.New(slog.DiscardHandler)), errors.New("no driver")
	if s.lost(away); s.Stuck() != "" {
		t.Errorf("without a driver before: %q", s.Stuck())
	}
	s.gpus["GPU-1"] = nvmlGPU{}
	if s.lost(fmt.Errorf("open: %w", errAsked)); s.Stuck() != "" {
		t.Errorf("while the agent asks: %q", s.Stuck())
	}
	if s.lost(away); s.Stuck() == "" {
		t.Error("a driver that is away is not noticed")
	}
}

// Of a GPU that uses the system's memory, no amount of memory is known but that of its processes.
func TestReadingOfSystemMemory(t *testing.T) {
	r := readingOf(nvml.Telemetry{Memory: nvml.Memory{System: true}, Listed: true,
		Residents: []nvml.Resident{{PID: 7, GI: -1, Used: 5, Known: true}}}, elsewhere{}, nil)
	if r.Device.Memory.Known || len(r.Fields) > 0 || !r.Device.Processes[0].Memory.Known {
		t.Errorf("reading %+v", r)
	}
}
