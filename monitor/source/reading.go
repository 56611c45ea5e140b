// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package source reads GPUs for kerf-monitor: NVML through the driver's library, and DCGM with its values laid over
// NVML's. Both implement collect.Source.
//
// Promised: it only reads. While the agent asks for a GPU, it asks the driver nothing about that GPU and holds no
// library open (see package internal/quiet). A driver or an engine that is not there is looked for again.
//
// Not promised: that the program survives what crashes in the driver's libraries. For that, kerf-monitor is a separate
// process.
package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// fieldOf says which field a sensor is, and by what its value is divided for the field's unit.
func fieldOf(s nvml.Sensor) (f collect.Field, divisor float64) {
	switch s {
	case nvml.SensorPower:
		return collect.FieldPower, 1000
	case nvml.SensorPowerLimit:
		return collect.FieldPowerLimit, 1000
	case nvml.SensorEnergy:
		return collect.FieldEnergy, 1
	case nvml.SensorSMClock:
		return collect.FieldSMClock, 1
	case nvml.SensorMemoryClock:
		return collect.FieldMemoryClock, 1
	case nvml.SensorTemperature:
		return collect.FieldTemperature, 1
	case nvml.SensorBusy:
		return collect.FieldBusy, 1
	case nvml.SensorMemoryBusy:
		return collect.FieldMemoryBusy, 1
	case nvml.SensorEncoder:
		return collect.FieldEncoder, 1
	case nvml.SensorDecoder:
		return collect.FieldDecoder, 1
	case nvml.SensorECCCorrected:
		return collect.FieldECCCorrected, 1
	case nvml.SensorECCUncorrected:
		return collect.FieldECCUncorrected, 1
	case nvml.SensorPCIeReplays:
		return collect.FieldPCIeReplays, 1
	case nvml.SensorRemappedCorrected:
		return collect.FieldRemappedCorrected, 1
	case nvml.SensorRemappedUncorrected:
		return collect.FieldRemappedUncorrected, 1
	case nvml.SensorRemapFailed:
		return collect.FieldRemapFailed, 1
	case nvml.SensorThrottle:
		return collect.FieldThrottle, 1
	}
	return 0, 0
}

// readingOf converts NVML's answer together with values from elsewhere. before are the processes of the reading
// before.
func readingOf(t nvml.Telemetry, known elsewhere, before []attribution.Process) collect.Reading {
	mib := func(b sharing.Bytes) float64 { return float64(b) / float64(sharing.MiB) }
	r := collect.Reading{Fields: make(map[collect.Field]float64, 32)}
	maps.Copy(r.Fields, known.rest)
	d := attribution.Device{Listed: t.Listed}
	if !t.Memory.System { // else no amount is known
		d.Memory = attribution.Known(t.Memory.Used)
		r.Fields[collect.FieldMemoryTotal], r.Fields[collect.FieldMemoryFree] = mib(t.Memory.Total), mib(t.Memory.Free)
		r.Fields[collect.FieldMemoryUsed], r.Fields[collect.FieldMemoryReserved] = mib(t.Memory.Used),
			mib(t.Memory.Reserved)
	}
	for s, v := range t.Sensors {
		if f, divisor := fieldOf(s); divisor > 0 {
			r.Fields[f] = float64(v) / divisor
		}
	}
	maps.Copy(r.Fields, known.better)
	d.SM, d.DRAM = percent(r.Fields, collect.FieldBusy), percent(r.Fields, collect.FieldMemoryBusy)
	d.Encoder, d.Decoder = percent(r.Fields, collect.FieldEncoder), percent(r.Fields, collect.FieldDecoder)
	d.Timed = t.Timed || d.SM == attribution.Known(attribution.Ratio(0)) // of an idle GPU there is no row
	d.Processes = processesOf(t, before)
	r.Device = d
	return r
}

// processesOf are NVML's processes by pid. If equal to before, it returns before; many readings share it, and none
// changes it.
func processesOf(t nvml.Telemetry, before []attribution.Process) []attribution.Process {
	var out []attribution.Process // from where on they are others than before
	for i, p := range t.Residents {
		q := attribution.Process{PID: p.PID, GI: p.GI}
		if p.Known {
			q.Memory = attribution.Known(p.Used)
		}
		if i == 0 || t.Residents[i-1].PID != p.PID { // its time is reported once, over all instances
			of := t.Activity[p.PID]
			q.SM, q.DRAM = attribution.Ratio(of.SM)/100, attribution.Ratio(of.Memory)/100
			q.Encoder, q.Decoder = attribution.Ratio(of.Encoder)/100, attribution.Ratio(of.Decoder)/100
			q.Untimed = slices.Contains(t.Doubt, p.PID)
		}
		if out == nil && i < len(before) && before[i] == q {
			continue
		}
		if out == nil {
			out = append(make([]attribution.Process, 0, len(t.Residents)), before[:i]...)
		}
		out = append(out, q)
	}
	if out == nil { // all of these were there before
		return before[:len(t.Residents):len(t.Residents)]
	}
	return out
}

func percent(fields map[collect.Field]float64, f collect.Field) attribution.Reading[attribution.Ratio] {
	v, ok := fields[f]
	if !ok {
		return attribution.Reading[attribution.Ratio]{}
	}
	return attribution.Known(attribution.Ratio(v / 100))
}

// instance is a MIG instance of a GPU at the last inventory.
type instance struct {
	gi      int
	slot    sharing.InstanceRef
	compute attribution.Ratio
}

func instancesOf(profiles []nvml.MIGProfile, list []nvml.MIGInstance) []instance {
	most, byID := 0, map[int]nvml.MIGProfile{}
	for _, p := range profiles {
		most, byID[p.ID] = max(most, p.Compute), p
	}
	var out []instance
	for _, in := range list {
		p := byID[in.Profile]
		out = append(out, instance{in.GI, sharing.InstanceRef{Profile: p.Name, Start: in.Start},
			attribution.Ratio(float64(p.Compute) / float64(max(most, 1)))})
	}
	return out
}

// sameInstances reports whether the instances that have memory are those that are known.
func sameInstances(instances []instance, memory []nvml.InstanceMemory) bool {
	return len(instances) == len(memory) && !slices.ContainsFunc(memory, func(m nvml.InstanceMemory) bool {
		return !slices.ContainsFunc(instances, func(c instance) bool { return c.gi == m.GI })
	})
}

func devicesOf(instances []instance, memory []nvml.InstanceMemory) []attribution.Instance {
	var out []attribution.Instance
	for _, c := range instances {
		in := attribution.Instance{GI: c.gi, Ref: c.slot, Compute: c.compute}
		for _, m := range memory {
			if m.GI == c.gi {
				in.Memory = attribution.Known(m.Memory.Used)
			}
		}
		out = append(out, in)
	}
	return out
}

// askedEvery is how often it is looked whether the agent asks for a GPU, while something is held on GPUs. The agent
// waits some seconds.
const askedEvery = 200 * time.Millisecond

// errAsked ends what holds GPUs because the agent wants one for itself.
var errAsked = errors.New("kerf-agent requests a GPU")

// holds are the GPUs that something reads for as long as it runs.
type holds struct {
	dir  *quiesce.Reader
	done map[sharing.GPUID]func()
}

func newHolds(dir *quiesce.Reader) *holds { return &holds{dir, map[sharing.GPUID]func(){}} }

// on takes part for these GPUs, those that it has already among them. The error wraps errAsked when one is asked for.
func (h *holds) on(gpus []sharing.GPUID) error {
	for _, gpu := range gpus {
		done, err := h.dir.Read(gpu)
		if err != nil {
			return fmt.Errorf("%w: %w", errAsked, err)
		}
		if h.done[gpu] != nil {
			done() // this was only to see
			continue
		}
		h.done[gpu] = done
	}
	return nil
}

// release ends it.
func (h *holds) release() {
	for _, gpu := range slices.Collect(maps.Keys(h.done)) {
		h.done[gpu]()
		delete(h.done, gpu)
	}
}
