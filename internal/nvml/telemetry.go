// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Sensor is one number that a GPU may tell of itself.
type Sensor uint8

// The sensors, with the units that NVML has for them.
const (
	SensorPower               Sensor = iota // milliwatts
	SensorPowerLimit                        // milliwatts, in force
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
)

// Telemetry is what one GPU tells at one moment. What it does not tell is absent.
type Telemetry struct {
	Memory  Memory
	Sensors map[Sensor]uint64
	// Residents are the processes, with one entry for each MIG instance that they use; only when Listed.
	Residents []Resident
	Listed    bool
	// Activity is what processes did since the time that was asked for; only when Timed. A process that is missing did
	// nothing.
	Activity map[int]Activity
	Timed    bool
	// others is true when there were processes that are not in the list of compute processes.
	others bool
}

// Resident is a process on a GPU or, in MIG mode, on one GPU instance of it.
type Resident struct {
	PID int
	// GI is the GPU instance, or -1.
	GI    int
	Used  sharing.Bytes
	Known bool // Used is told
	MPS   bool
}

// Activity is the percent of time in which a process's kernels ran, in which memory was accessed for it, and in which
// video was encoded and decoded for it.
type Activity struct{ SM, Memory, Encoder, Decoder int }

// InstanceMemory is the memory of one GPU instance.
type InstanceMemory struct {
	GI     int
	Memory Memory
}

// senses is a device that tells more than its memory: what not every door has.
type senses interface {
	// sensors are the quick ones, or all.
	sensors(all bool) map[Sensor]uint64
	// computeProcesses is the first of the lists of processes.
	computeProcesses() ([]resident, error)
	instanceMemory() ([]InstanceMemory, error)
}

// Telemetry asks a GPU for all that it tells, with what its processes did since then. An error means that not even its
// memory can be told.
//
// before, where it is not nil, is an answer that is young enough for what changes slowly to be taken from it: all sensors but
// power, energy and use, and that no process was in the lists of graphics and of MPS.
func (l *Library) Telemetry(ctx context.Context, id sharing.GPUID, since time.Time, before *Telemetry) (Telemetry, error) {
	return onGPU(ctx, l, "read telemetry", id, func(d device) (Telemetry, error) {
		m, err := plausible(d.memory())
		if err != nil {
			return Telemetry{}, err
		}
		t := Telemetry{Memory: m}
		if lists, err := listsOf(d, before); err == nil {
			t.Residents, t.Listed = residents(lists), true
			t.others = slices.ContainsFunc(lists[1:], func(l []resident) bool { return len(l) > 0 })
		}
		if samples, err := d.processTime(since); err == nil {
			t.Activity, err = activity(samples)
			t.Timed = err == nil
		}
		if s, ok := d.(senses); ok {
			t.Sensors = s.sensors(before == nil)
			if before != nil {
				for sensor, v := range before.Sensors {
					if !sensor.quick() {
						t.Sensors[sensor] = v
					}
				}
			}
		}
		return t, nil
	})
}

// quick reports whether a sensor changes all the time.
func (s Sensor) quick() bool {
	switch s { //nolint:exhaustive // the others do not
	case SensorPower, SensorEnergy, SensorBusy, SensorMemoryBusy:
		return true
	}
	return false
}

// listsOf are the lists of processes, that of compute first.
func listsOf(d device, before *Telemetry) ([][]resident, error) {
	if s, ok := d.(senses); ok && before != nil && before.Listed && !before.others {
		compute, err := s.computeProcesses()
		return [][]resident{compute}, err
	}
	return d.processes()
}

// activity is the mean of each process's samples.
func activity(samples []timeSample) (map[int]Activity, error) {
	out := map[int]Activity{}
	for _, of := range []struct {
		part func(timeSample) int
		put  func(*Activity, int)
	}{
		{func(s timeSample) int { return s.percent }, func(a *Activity, v int) { a.SM = v }},
		{func(s timeSample) int { return s.memory }, func(a *Activity, v int) { a.Memory = v }},
		{func(s timeSample) int { return s.encoder }, func(a *Activity, v int) { a.Encoder = v }},
		{func(s timeSample) int { return s.decoder }, func(a *Activity, v int) { a.Decoder = v }},
	} {
		mean, err := meanByProcess(samples, of.part)
		if err != nil {
			return nil, err
		}
		for pid, v := range mean {
			a := out[pid]
			of.put(&a, v)
			out[pid] = a
		}
	}
	return out, nil
}

// InstanceMemory returns the memory of each GPU instance that has a compute instance, none outside MIG mode.
func (l *Library) InstanceMemory(ctx context.Context, id sharing.GPUID) ([]InstanceMemory, error) {
	return onGPU(ctx, l, "read memory of mig instances", id, func(d device) ([]InstanceMemory, error) {
		s, ok := d.(senses)
		if !ok {
			return nil, absent("nvmlDeviceGetMigDeviceHandleByIndex")
		}
		return s.instanceMemory()
	})
}

// residents makes one list of several, as merge does, and keeps instances apart.
func residents(lists [][]resident) []Resident {
	type place struct {
		pid int
		gi  uint32
	}
	byGI := map[place][][]resident{}
	var order []place
	for _, list := range lists {
		parts := map[place][]resident{}
		for _, r := range list {
			p := place{r.pid, r.gi}
			if byGI[p] == nil && parts[p] == nil {
				order = append(order, p)
			}
			parts[p] = append(parts[p], r)
		}
		for p, rows := range parts {
			byGI[p] = append(byGI[p], rows)
		}
	}
	out := make([]Resident, 0, len(order))
	for _, p := range order {
		for _, one := range merge(byGI[p]) {
			r := Resident{PID: one.PID, GI: -1, Used: one.Used, Known: one.Known, MPS: one.MPS}
			if p.gi != noInstance {
				r.GI = int(p.gi)
			}
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Resident) int {
		if a.PID != b.PID {
			return a.PID - b.PID
		}
		return a.GI - b.GI
	})
	return out
}
