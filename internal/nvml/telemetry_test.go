// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	g.times = []timeSample{{7, 10, 4, 8, 2}, {9, 50, 20, 0, 0}, {7, 30, 6, 0, 4}, {0, 5, 5, 5, 5}}
	want := Telemetry{
		Memory: g.mem, Listed: true, Timed: true,
		Residents: []Resident{{PID: 7, GI: 1, Used: 5, Known: true}, {PID: 7, GI: 2, Used: 6, Known: true}, {PID: 9, GI: -1, Used: 4, Known: true, MPS: true}},
		Activity:  map[int]Activity{7: {20, 5, 4, 3}, 9: {50, 20, 0, 0}},
	}
	got, err := l.Telemetry(ctx, id, time.Time{}, nil)
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Telemetry{})); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	g.times = []timeSample{{7, 10, 1, 1, 101}}
	if got, err = l.Telemetry(ctx, id, time.Time{}, nil); err != nil || got.Timed || got.Activity != nil {
		t.Errorf("an absurd share of time is told: %+v, %v", got, err)
	}
	g.mem.Used = g.mem.Total + 1
	if got, err = l.Telemetry(ctx, id, time.Time{}, nil); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("absurd memory is told: %+v, %v", got, err)
	}
	if in, err := l.InstanceMemory(ctx, id); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("instances of a door that has none: %v, %v", in, err)
	}
}

// sensing is a device that tells all; it counts what it was asked for.
type sensing struct {
	*fakeGPU
	all, quick, lists *int
}

func (s sensing) sensors(all bool) map[Sensor]uint64 {
	if all {
		*s.all++
		return map[Sensor]uint64{SensorPower: 100, SensorTemperature: 40}
	}
	*s.quick++
	return map[Sensor]uint64{SensorPower: 200}
}

func (s sensing) instanceMemory() ([]InstanceMemory, error) { return nil, nil }

func (s sensing) computeProcesses() ([]resident, error) { return s.fakeGPU.lists[0], nil }

func (s sensing) processes() ([][]resident, error) { *s.lists++; return s.fakeGPU.lists, nil }

// sensingDoor has one such device.
type sensingDoor struct {
	*fakeDoor
	dev sensing
}

func (d sensingDoor) byUUID(sharing.GPUID) (device, error) { return d.dev, nil }
func (d sensingDoor) byIndex(int) (device, error)          { return d.dev, nil }

// TestQuickTelemetry asks again a moment later.
func TestQuickTelemetry(t *testing.T) {
	g := gpu(0)
	l, fake := open4test(t, Options{}, g)
	var all, quick, lists int
	l.door = sensingDoor{fake, sensing{g, &all, &quick, &lists}}
	g.lists = [][]resident{{{pid: 7, gi: noInstance, used: 5, known: true}}, nil}
	ask := func(before *Telemetry) Telemetry {
		t.Helper()
		got, err := l.Telemetry(t.Context(), g.id.uuid, time.Time{}, before)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	full := ask(nil)
	next := ask(&full)
	want := map[Sensor]uint64{SensorPower: 200, SensorTemperature: 40}
	if d := cmp.Diff(want, next.Sensors); d != "" || len(next.Residents) != 1 || all != 1 || quick != 1 || lists != 1 {
		t.Errorf("%s\n%d full, %d quick, %d lists: %+v", d, all, quick, lists, next)
	}
	g.lists[1] = []resident{{pid: 9, gi: noInstance, used: 5, known: true}}
	full = ask(nil)
	if next = ask(&full); len(next.Residents) != 2 || lists != 3 {
		t.Errorf("with a process of graphics: %d lists, %+v", lists, next)
	}
}
