// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
	now := time.Now().Add(time.Minute) // it is not old before the test has asked
	row := func(pid int, at time.Time, sm, memory, encoder, decoder int) sharing.TimeRow {
		return sharing.TimeRow{PID: pid, At: at, SM: sm, Memory: memory, Encoder: encoder, Decoder: decoder}
	}
	g.times = []sharing.TimeRow{row(7, now, 20, 5, 4, 3), row(9, now, 50, 20, 0, 0),
		row(7, now.Add(-time.Second), 30, 6, 0, 4), row(0, now, 5, 5, 5, 5), row(11, now, 10, 1, 1, 101)}
	want := Telemetry{
		Memory: g.mem, Listed: true, Timed: true,
		Residents: []Resident{{PID: 7, GI: 1, Used: 5, Known: true}, {PID: 7, GI: 2, Used: 6, Known: true},
			{PID: 9, GI: -1, Used: 4, Known: true, MPS: true}},
		Activity: map[int]Activity{7: {20, 5, 4, 3}, 9: {50, 20, 0, 0}}, Doubt: []int{11},
	}
	got, err := l.Telemetry(ctx, id, TelemetryRequest{})
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Telemetry{})); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	g.times = []sharing.TimeRow{row(7, now, 10, 1, 1, 101)}
	if got, err = l.Telemetry(ctx, id, TelemetryRequest{}); err != nil || got.Timed || got.Activity != nil {
		t.Errorf("an absurd share of time is reported: %+v, %v", got, err)
	}
	g.mem.Used = g.mem.Total + 1
	if got, err = l.Telemetry(ctx, id, TelemetryRequest{}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("absurd memory is reported: %+v, %v", got, err)
	}
	if in, err := l.InstanceMemory(ctx, id); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("instances of a library that has none: %v, %v", in, err)
	}
}

// sensing is a device that tells all but its throttling; it counts what it was asked for.
type sensing struct {
	*fakeGPU
	asked         map[string]int
	value         uint64
	withInstances []part
	lost          error // of the list of compute processes
}

func (s *sensing) sensors(want func(Sensor) bool) map[Sensor]uint64 {
	out := map[Sensor]uint64{}
	for x := range sensorsEnd {
		if !want(x) {
			continue
		}
		s.asked[fmt.Sprint("sensor ", x)]++
		if x != SensorThrottle {
			out[x] = s.value
		}
	}
	return out
}

func (s *sensing) memory() (Memory, error) { s.asked["memory"]++; return s.fakeGPU.memory() }

func (s *sensing) instances() ([]part, error) { s.asked["instances"]++; return s.withInstances, nil }

func (s *sensing) computeProcesses() ([]resident, error) {
	s.asked["compute"]++
	if s.lost != nil {
		return nil, s.lost
	}
	return slices.Clone(s.lists[0]), nil
}

func (s *sensing) processes() ([][]resident, error) { s.asked["lists"]++; return s.lists, nil }

func (s *sensing) processTime(time.Time) ([]sharing.TimeRow, error) {
	s.asked["time"]++
	return []sharing.TimeRow{{PID: 7, At: time.Now(), SM: 5}}, nil
}

// sensingDoor has one such device.
type sensingAdapter struct {
	*fakeAdapter
	dev *sensing
}

func (d sensingAdapter) byUUID(sharing.GPUID) (device, error) { return d.dev, nil }
func (d sensingAdapter) byIndex(int) (device, error)          { return d.dev, nil }

// TestTelemetryAgain asks again and again: recent values are not read again, and the answer has all values.
func TestTelemetryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, in := gpu(0), gpu(1)
		dev := &sensing{fakeGPU: g, asked: map[string]int{}, value: 1, withInstances: []part{{3, in}}}
		l, fake := open4test(t, Options{}, g)
		l.adapter = sensingAdapter{fake, dev}
		g.lists = [][]resident{{{pid: 7, gi: noInstance, used: 5, known: true}}, nil}
		var last *Telemetry
		names := map[string]Sensor{"power": SensorPower, "temperature": SensorTemperature, "ecc": SensorECCCorrected,
			"throttle": SensorThrottle, "energy": SensorEnergy}
		ask := func(step string, want map[string]int) Telemetry {
			t.Helper()
			clear(dev.asked)
			got, err := l.Telemetry(t.Context(), g.id.uuid,
				TelemetryRequest{Before: last, Instances: true, Skip: func(s Sensor) bool { return s == SensorEnergy }})
			if err != nil {
				t.Fatal(err)
			}
			last = &got
			for name, s := range names {
				if n := dev.asked[fmt.Sprint("sensor ", s)]; n != 0 {
					dev.asked[name] = n
				}
				delete(dev.asked, fmt.Sprint("sensor ", s))
			}
			for k := range dev.asked {
				if strings.HasPrefix(k, "sensor") {
					delete(dev.asked, k)
				}
			}
			if d := cmp.Diff(want, dev.asked); d != "" {
				t.Errorf("%s: asked (-want +got):\n%s", step, d)
			}
			if len(got.Instances) != 1 || got.Instances[0].GI != 3 || len(got.Residents) != 1 || !got.Timed {
				t.Errorf("%s: %+v", step, got)
			}
			for s := range sensorsEnd {
				if _, reported := got.Sensors[s]; reported == (s == SensorThrottle || s == SensorEnergy) {
					t.Errorf("%s: sensor %d: %v", step, s, got.Sensors)
				}
			}
			return got
		}
		ask("at first", map[string]int{"power": 1, "temperature": 1, "ecc": 1, "throttle": 1, "lists": 1, "memory": 1,
			"time": 1, "instances": 1})
		dev.value = 2
		time.Sleep(100 * time.Millisecond)
		in.mem.Used++
		if got := ask("soon", map[string]int{"compute": 1}); got.Sensors[SensorPower] != 1 ||
			got.Sensors[SensorTemperature] != 1 || got.Instances[0].Memory.Used == in.mem.Used {
			t.Errorf("sensors %v, instances %v", got.Sensors, got.Instances)
		}
		g.lists[0][0].used++
		g.mem.Used++
		if got := ask("when a process has more",
			map[string]int{"compute": 1, "memory": 1}); got.Instances[0].Memory.Used != in.mem.Used ||
			got.Memory.Used != g.mem.Used {
			t.Errorf("memory %v, instances %v", got.Memory, got.Instances)
		}
		time.Sleep(200 * time.Millisecond)
		ask("a little later", map[string]int{"power": 1, "compute": 1, "time": 1})
		in.mem.Used++
		time.Sleep(100 * time.Millisecond)
		if got := ask("with as much in use",
			map[string]int{"compute": 1, "memory": 1}); got.Instances[0].Memory.Used == in.mem.Used {
			t.Errorf("instances %v", got.Instances)
		}
		g.mem.Used++
		time.Sleep(300 * time.Millisecond)
		if got := ask("with more in use", map[string]int{"power": 1, "compute": 1, "memory": 1,
			"time": 1}); got.Instances[0].Memory.Used != in.mem.Used || got.Memory.Used != g.mem.Used {
			t.Errorf("memory %v, instances %v", got.Memory, got.Instances)
		}
		time.Sleep(300 * time.Millisecond)
		if got := ask("after a second", map[string]int{"power": 1, "temperature": 1, "compute": 1, "memory": 1,
			"time": 1}); got.Sensors[SensorTemperature] != 2 || got.Sensors[SensorECCCorrected] != 1 {
			t.Errorf("sensors %v", got.Sensors)
		}
		in.mem.Used++
		time.Sleep(700 * time.Millisecond)
		if got := ask("with as much in use for long", map[string]int{"power": 1, "compute": 1, "memory": 1,
			"time": 1}); got.Instances[0].Memory.Used == in.mem.Used {
			t.Errorf("instances %v", got.Instances)
		}
		in.err = lost() // the instance was created again: its handle is invalid
		again := gpu(2)
		dev.withInstances = []part{{3, again}}
		g.mem.Used--
		time.Sleep(300 * time.Millisecond)
		ask("with a stale handle", map[string]int{"power": 1, "temperature": 1, "compute": 1, "memory": 1, "time": 1,
			"instances": 1})
		time.Sleep(1500 * time.Millisecond)
		ask("after three seconds", map[string]int{"power": 1, "temperature": 1, "lists": 1, "memory": 1, "time": 1})
		time.Sleep(4 * time.Second)
		again.mem.Used = 5
		if got := ask("after seven seconds", map[string]int{"power": 1, "temperature": 1, "ecc": 1, "throttle": 1,
			"lists": 1, "memory": 1, "time": 1, "instances": 1}); got.Instances[0].Memory.Used != 5 {
			t.Errorf("instances %v", got.Instances)
		}
	})
}

// TestResidents compares the list with what a naive reading of merge makes of each instance by itself.
func TestResidents(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		lists := make([][]resident, 1+r.IntN(3))
		for i := range lists {
			for range r.IntN(8) {
				one := resident{pid: r.IntN(5), gi: uint32(r.IntN(3)), ci: uint32(r.IntN(2)), known: r.IntN(4) > 0,
					mps: i == 2}
				if one.gi == 2 {
					one.gi, one.ci = noInstance, noInstance
				}
				if one.known {
					one.used = sharing.Bytes(r.IntN(3))
				}
				lists[i] = append(lists[i], one)
			}
		}
		want := []Resident{}
		for pid := 1; pid < 5; pid++ {
			for _, gi := range []uint32{noInstance, 0, 1} {
				var of []resident
				for _, list := range lists {
					for _, one := range list {
						if one.pid == pid && one.gi == gi {
							of = append(of, one)
						}
					}
				}
				for _, one := range merge([][]resident{of}) {
					x := Resident{PID: pid, GI: int(gi), Used: one.Used, Known: one.Known, MPS: one.MPS}
					if gi == noInstance {
						x.GI = -1
					}
					want = append(want, x)
				}
			}
		}
		if d := cmp.Diff(want, residents(lists)); d != "" {
			t.Fatalf("of %+v (-want +got):\n%s", lists, d)
		}
	}
}

// TestTelemetryOfUnreportedProcesses: while the memory of a process is unknown, each call asks for the GPU's memory. An
// error of the lists hides none of the GPU's.
func TestTelemetryOfUnreportedProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gpu(0)
		dev := &sensing{fakeGPU: g, asked: map[string]int{}}
		l, fake := open4test(t, Options{}, g)
		l.adapter = sensingAdapter{fake, dev}
		g.lists = [][]resident{{{pid: 7, gi: noInstance}, {pid: 8, gi: noInstance, used: 5, known: true}}}
		last, err := l.Telemetry(t.Context(), g.id.uuid, TelemetryRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			g.mem.Used++
			got, err := l.Telemetry(t.Context(), g.id.uuid, TelemetryRequest{Before: &last})
			if err != nil || got.Memory.Used != g.mem.Used || dev.asked["memory"] != n+2 {
				t.Fatalf("%+v, %v, asked %v", got, err, dev.asked)
			}
			last = got
		}
		g.lists[0][0].known = true
		if last, err = l.Telemetry(t.Context(), g.id.uuid, TelemetryRequest{Before: &last}); err != nil ||
			dev.asked["memory"] != 5 {
			t.Fatalf("a process tells what it has: %v, asked %v", err, dev.asked)
		}
		g.lists, g.err = nil, lost()
		dev.lost = lost()
		if got, err := l.Telemetry(t.Context(), g.id.uuid, TelemetryRequest{Before: &last}); !errors.Is(err,
			sharing.ErrLost) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestTelemetryOfGraphics: while one is in another list than that of compute, all are read each time.
func TestTelemetryOfGraphics(t *testing.T) {
	g := gpu(0)
	dev := &sensing{fakeGPU: g, asked: map[string]int{}}
	l, fake := open4test(t, Options{}, g)
	l.adapter = sensingAdapter{fake, dev}
	g.lists = [][]resident{{{pid: 7, gi: noInstance, used: 5, known: true}},
		{{pid: 9, gi: noInstance, used: 5, known: true}}}
	var last *Telemetry
	for range 3 {
		got, err := l.Telemetry(t.Context(), g.id.uuid, TelemetryRequest{Before: last})
		if err != nil || len(got.Residents) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		last = &got
	}
	if dev.asked["lists"] != 3 || dev.asked["compute"] != 0 {
		t.Errorf("asked %v", dev.asked)
	}
}
