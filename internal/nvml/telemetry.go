// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Sensor is one number that a GPU may tell of itself.
type Sensor uint8

// The sensors, with the units that NVML has for them.
const (
	SensorPower               Sensor = iota // milliwatts
	SensorPowerLimit                        // milliwatts, enforced
	SensorEnergy                            // millijoules since the driver was loaded
	SensorSMClock                           // MHz
	SensorMemoryClock                       // MHz
	SensorTemperature                       // degrees Celsius
	SensorBusy                              // percent of the last sample period with a kernel running
	SensorMemoryBusy                        // percent of it in which memory was read or written
	SensorEncoder                           // percent
	SensorDecoder                           // percent
	SensorECCCorrected                      // errors since the driver was loaded
	SensorECCUncorrected                    // errors since the driver was loaded
	SensorPCIeReplays                       // since the driver was loaded
	SensorRemappedCorrected                 // rows
	SensorRemappedUncorrected               // rows
	SensorRemapFailed                       // 1: a row could not be remapped
	SensorThrottle                          // nvmlClocksEventReason* bits

	sensorsEnd
)

// How long an answer is taken for what would be answered now. Each is a little less than a usual interval of samples.
const (
	// timeKept is for what processes did, how busy the GPU was and its power. It is also for the GPU's memory while no
	// process came, went, or has more or less. Drivers sample these some times in a second, or report the mean of a
	// second. NVML's nvmlUtilization_t: every sixth of a second to once a second. The call nvmlDeviceGetPowerUsage: the
	// mean of a second since Ampere.
	timeKept = 270 * time.Millisecond
	// otherKept is for sensors that change from second to second.
	otherKept = 900 * time.Millisecond
	// listsKept is for the lists of graphics and of MPS clients in which there was none.
	listsKept = 2900 * time.Millisecond
	// seldomKept is for counters and settings that hardly change, for what the GPU did not report, and for the places
	// of its MIG instances. The same for their memory while no process and not the GPU has a byte more or less.
	seldomKept = 4900 * time.Millisecond
)

// TelemetryRequest says what of a GPU's telemetry is wanted.
type TelemetryRequest struct {
	// Before is the answer before, of the same library; from it is taken what is young enough. Nil has all asked for.
	Before *Telemetry
	// Skip reports which sensors are not needed; nil for none.
	Skip func(Sensor) bool
	// Instances asks for the memory of MIG instances.
	Instances bool
}

// Telemetry is what one GPU tells at one moment. What it does not tell is absent.
type Telemetry struct {
	Memory  Memory
	Sensors map[Sensor]uint64
	// Residents are the processes, with one entry for each MIG instance that they use; only when Listed.
	Residents []Resident
	Listed    bool
	// Activity is what processes did in the last sharing.TimeRing, as far as the driver's samples show. It needs Timed,
	// and so a row of some process. One that is missing was in no sample, or is in Doubt.
	Activity map[int]Activity
	Doubt    []int
	Timed    bool
	// Instances is the memory of MIG instances, as far as it was requested and is known.
	Instances []InstanceMemory

	// others is true when there were processes that are not in the list of compute processes.
	others bool
	// compute is the list of compute processes, and same is true if all processes are as before, and known.
	compute []resident
	same    bool
	// parts are the instances, and unknown the requested sensors without a value.
	parts   []part
	unknown map[Sensor]bool
	// noTime is true if the device does not support activity.
	noTime bool
	// at is when each was asked for.
	at struct{ memory, time, often, instances, lists, others, seldom time.Time }
}

// part is a GPU instance and its handle.
type part struct {
	gi  int
	dev device
}

// Resident is a process on a GPU or, in MIG mode, on one GPU instance of it.
type Resident struct {
	PID int
	// GI is the GPU instance, or -1.
	GI    int
	Used  sharing.Bytes
	Known bool // Used is known
	MPS   bool
}

// Activity is how a process used the last time, in percent. Its kernels ran, memory was accessed for it, and video was
// encoded and decoded for it.
type Activity struct{ SM, Memory, Encoder, Decoder int }

// InstanceMemory is the memory of one GPU instance.
type InstanceMemory struct {
	GI     int
	Memory Memory
}

// senses is a device that reports more than its memory, which not every adapter can.
type senses interface {
	sensors(want func(Sensor) bool) map[Sensor]uint64
	// computeProcesses is the first of the lists of processes.
	computeProcesses() ([]resident, error)
	instances() ([]part, error)
}

// Telemetry reads all values of a GPU, and reuses recent values of the last answer. An error means that not even its
// memory is known.
func (r *Readings) Telemetry(ctx context.Context, id sharing.GPUID, a TelemetryRequest) (Telemetry, error) {
	return onGPU(ctx, r.driver, "read telemetry", id, func(d device) (Telemetry, error) {
		t, now := Telemetry{}, time.Now()
		if a.Before == nil {
			a.Before = &Telemetry{}
		}
		t.askLists(d, a.Before, now)
		if err := t.askMemory(d, a.Before, now); err != nil {
			return Telemetry{}, err
		}
		t.askActivity(d, a, now)
		if s, ok := d.(senses); ok {
			t.askSensors(s, a, now)
			if a.Instances {
				t.askInstances(s, a.Before, now)
			}
		}
		return t, nil
	})
}

// askLists reads the processes: the list of compute always, the others again when it is time or if there was any in
// them.
func (t *Telemetry) askLists(d device, before *Telemetry, now time.Time) {
	lists, err := [][]resident{nil}, error(nil)
	if s, ok := d.(senses); ok && before.Listed && !before.others && now.Sub(before.at.lists) < listsKept {
		t.at.lists = before.at.lists
		lists[0], err = s.computeProcesses()
	} else {
		t.at.lists = now
		lists, err = d.processes()
	}
	if err != nil {
		return
	}
	t.compute, t.Listed = lists[0], true
	t.others = slices.ContainsFunc(lists[1:], func(l []resident) bool { return len(l) > 0 })
	if before.Listed && !t.others && !before.others && slices.Equal(t.compute, before.compute) {
		t.Residents = before.Residents // the same slice, for who keeps what was made of it
	} else {
		t.Residents = residents(lists)
	}
	t.same = before.Listed && slices.Equal(t.Residents, before.Residents) &&
		!slices.ContainsFunc(t.Residents, func(r Resident) bool { return !r.Known })
}

// askMemory reads the GPU's memory. While all processes are as before it is taken to be so, too, for a moment: others
// than they hardly have any.
func (t *Telemetry) askMemory(d device, before *Telemetry, now time.Time) (err error) {
	if t.same && now.Sub(before.at.memory) < timeKept {
		t.Memory, t.at.memory = before.Memory, before.at.memory
		return nil
	}
	t.at.memory = now
	t.Memory, err = plausible(memoryOfGPU(d))
	return err
}

// askActivity reads what processes did.
func (t *Telemetry) askActivity(d device, a TelemetryRequest, now time.Time) {
	kept := timeKept
	if a.Before.noTime {
		kept = seldomKept
	}
	if now.Sub(a.Before.at.time) < kept {
		t.Activity, t.Doubt, t.Timed = a.Before.Activity, a.Before.Doubt, a.Before.Timed
		t.noTime, t.at.time = a.Before.noTime, a.Before.at.time
		return
	}
	t.at.time = now
	since := now.Add(-sharing.TimeRing)
	rows, err := d.processTime(since)
	t.noTime = errors.Is(err, sharing.ErrUnsupported)
	if use := sharing.UseOf(rows, since); err == nil && use.Known() {
		t.Activity, t.Doubt, t.Timed = map[int]Activity{}, use.Doubt, true
		for pid, r := range use.Rows {
			t.Activity[pid] = Activity{r.SM, r.Memory, r.Encoder, r.Decoder}
		}
	}
}

// askSensors reads the sensors that it is time for.
func (t *Telemetry) askSensors(s senses, a TelemetryRequest, now time.Time) {
	before := a.Before
	other, seldom := now.Sub(before.at.others) >= otherKept, now.Sub(before.at.seldom) >= seldomKept
	often := seldom || now.Sub(before.at.often) >= timeKept
	if t.at.often = before.at.often; often {
		t.at.often = now
	}
	if t.at.others = before.at.others; other {
		t.at.others = now
	}
	if t.at.seldom = before.at.seldom; seldom {
		t.at.seldom = now
	}
	due := func(x Sensor) bool {
		switch _, reported := before.Sensors[x]; {
		case seldom:
			return true
		case before.unknown[x]:
			return false
		case !reported: // one that was not needed before may be now
			return true
		case x.often():
			return often
		}
		return other && !x.seldom()
	}
	want := func(x Sensor) bool { return (a.Skip == nil || !a.Skip(x)) && due(x) }
	t.Sensors, t.unknown = s.sensors(want), map[Sensor]bool{}
	for x := range sensorsEnd {
		switch _, reported := t.Sensors[x]; {
		case reported || a.Skip != nil && a.Skip(x):
		case want(x):
			t.unknown[x] = true
		case before.unknown[x]:
			t.unknown[x] = true
		default:
			t.Sensors[x] = before.Sensors[x]
		}
	}
}

// askInstances reads the memory of MIG instances, at their last known places while those are valid. Their memory is
// unchanged under two conditions. No process came, went, or has other memory than before, and the GPU's use is the
// same.
func (t *Telemetry) askInstances(s senses, before *Telemetry, now time.Time) {
	found := before.parts != nil && !t.at.seldom.Equal(now)
	if found && t.same && t.Memory == before.Memory && now.Sub(before.at.instances) < seldomKept {
		t.Instances, t.parts, t.at.instances = before.Instances, before.parts, before.at.instances
		return
	}
	t.at.instances = now
	if found {
		if memory, err := memoryOf(before.parts); err == nil {
			t.Instances, t.parts = memory, before.parts
			return
		}
	}
	parts, err := s.instances()
	if err != nil {
		return
	}
	if memory, err := memoryOf(parts); err == nil {
		t.Instances, t.parts = memory, parts
	}
}

func memoryOf(parts []part) ([]InstanceMemory, error) {
	var out []InstanceMemory
	for _, p := range parts {
		m, err := p.dev.memory()
		if err != nil {
			return nil, fmt.Errorf("gpu instance %d: %w", p.gi, err)
		}
		out = append(out, InstanceMemory{p.gi, m})
	}
	return out, nil
}

// often reports whether a sensor changes some times in a second.
func (s Sensor) often() bool {
	switch s { //nolint:exhaustive // the others do not
	case SensorPower, SensorBusy, SensorMemoryBusy:
		return true
	}
	return false
}

// seldom reports whether a sensor hardly changes, or takes long. The energy counter takes 3 ms of a processor on an
// H200 with driver 580.159, and power 0.4 µs.
func (s Sensor) seldom() bool {
	switch s { //nolint:exhaustive // the others do
	case SensorEnergy, SensorPowerLimit, SensorECCCorrected, SensorECCUncorrected, SensorPCIeReplays,
		SensorRemappedCorrected, SensorRemappedUncorrected, SensorRemapFailed:
		return true
	}
	return false
}

// InstanceMemory returns the memory of each GPU instance that has a compute instance, none outside MIG mode.
func (r *Readings) InstanceMemory(ctx context.Context, id sharing.GPUID) ([]InstanceMemory, error) {
	return onGPU(ctx, r.driver, "read memory of mig instances", id, func(d device) ([]InstanceMemory, error) {
		s, ok := d.(senses)
		if !ok {
			return nil, absent("nvmlDeviceGetMigDeviceHandleByIndex")
		}
		parts, err := s.instances()
		if err != nil {
			return nil, err
		}
		return memoryOf(parts)
	})
}

// residents makes one list of several, as merge does, and keeps instances apart. It is made for each sample of each
// GPU, with hundreds of processes: mostly each is in it once, and only the others are merged.
func residents(lists [][]resident) []Resident {
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	all := make([]resident, 0, n)
	for _, list := range lists {
		for _, r := range list {
			if r.pid > 0 { // no process: nothing could be done with it
				all = append(all, r)
			}
		}
	}
	slices.SortStableFunc(all, byPlace)
	out := make([]Resident, 0, len(all))
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && byPlace(all[i], all[j]) == 0 {
			j++
		}
		one := Process{PID: all[i].pid, Used: all[i].used, Known: all[i].known, MPS: all[i].mps}
		if j > i+1 {
			one = merge([][]resident{all[i:j]})[0] // they are all of one process
		}
		r := Resident{PID: one.PID, GI: -1, Known: one.Known, MPS: one.MPS}
		if one.Known {
			r.Used = one.Used
		}
		if gi := all[i].gi; gi != noInstance {
			r.GI = int(gi)
		}
		out = append(out, r)
		i = j
	}
	return out
}

// byPlace orders by process and GPU instance, those that are on none first.
func byPlace(a, b resident) int {
	// noInstance is the largest number, and 0 with one more
	return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.gi+1, b.gi+1))
}
