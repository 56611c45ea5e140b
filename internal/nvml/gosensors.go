// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// sensors asks for each sensor that is wanted; what fails is left out. The library is asked for a function before it is
// called.
func (g goDevice) sensors(want func(Sensor) bool) map[Sensor]uint64 {
	out := make(map[Sensor]uint64, 16)
	keep := func(s Sensor, v uint64, r nvml.Return) {
		if r == nvml.SUCCESS && want(s) {
			out[s] = v
		}
	}
	has := func(name string, of ...Sensor) bool { return slices.ContainsFunc(of, want) && g.d.need(name) == nil }
	small := func(name string, s Sensor, get func() (uint32, nvml.Return)) {
		if has(name, s) {
			v, r := get()
			keep(s, uint64(v), r)
		}
	}
	large := func(name string, s Sensor, get func() (uint64, nvml.Return)) {
		if has(name, s) {
			v, r := get()
			keep(s, v, r)
		}
	}
	small("nvmlDeviceGetPowerUsage", SensorPower, g.dev.GetPowerUsage)
	large("nvmlDeviceGetTotalEnergyConsumption", SensorEnergy, g.dev.GetTotalEnergyConsumption)
	if has("nvmlDeviceGetUtilizationRates", SensorBusy, SensorMemoryBusy) {
		u, r := g.dev.GetUtilizationRates()
		if u.Gpu <= 100 && u.Memory <= 100 { // more is not a percentage
			keep(SensorBusy, uint64(u.Gpu), r)
			keep(SensorMemoryBusy, uint64(u.Memory), r)
		}
	}
	small("nvmlDeviceGetEnforcedPowerLimit", SensorPowerLimit, g.dev.GetEnforcedPowerLimit)
	small("nvmlDeviceGetClockInfo", SensorSMClock,
		func() (uint32, nvml.Return) { return g.dev.GetClockInfo(nvml.CLOCK_SM) })
	small("nvmlDeviceGetClockInfo", SensorMemoryClock,
		func() (uint32, nvml.Return) { return g.dev.GetClockInfo(nvml.CLOCK_MEM) })
	small("nvmlDeviceGetTemperature", SensorTemperature,
		func() (uint32, nvml.Return) { return g.dev.GetTemperature(nvml.TEMPERATURE_GPU) })
	small("nvmlDeviceGetEncoderUtilization", SensorEncoder,
		func() (uint32, nvml.Return) { v, _, r := g.dev.GetEncoderUtilization(); return v, r })
	small("nvmlDeviceGetDecoderUtilization", SensorDecoder,
		func() (uint32, nvml.Return) { v, _, r := g.dev.GetDecoderUtilization(); return v, r })
	large("nvmlDeviceGetTotalEccErrors", SensorECCCorrected, func() (uint64, nvml.Return) {
		return g.dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
	})
	large("nvmlDeviceGetTotalEccErrors", SensorECCUncorrected, func() (uint64, nvml.Return) {
		return g.dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	large("nvmlDeviceGetCurrentClocksEventReasons", SensorThrottle, g.dev.GetCurrentClocksEventReasons)
	if has("nvmlDeviceGetPcieReplayCounter", SensorPCIeReplays) {
		v, r := g.dev.GetPcieReplayCounter()
		keep(SensorPCIeReplays, uint64(max(v, 0)), r)
	}
	if has("nvmlDeviceGetRemappedRows", SensorRemappedCorrected, SensorRemappedUncorrected, SensorRemapFailed) {
		corrected, uncorrected, _, failed, r := g.dev.GetRemappedRows()
		keep(SensorRemappedCorrected, uint64(max(corrected, 0)), r)
		keep(SensorRemappedUncorrected, uint64(max(uncorrected, 0)), r)
		keep(SensorRemapFailed, flag(failed), r)
	}
	return out
}

func flag(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

// instances finds the GPU instances that have a compute instance, none outside MIG mode.
func (g goDevice) instances() ([]part, error) {
	most, err := ask(g.d, "nvmlDeviceGetMaxMigDeviceCount", g.dev.GetMaxMigDeviceCount)
	if errors.Is(err, sharing.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []part
	for i := range min(most, maxInstances) {
		h, err := ask(g.d, "nvmlDeviceGetMigDeviceHandleByIndex",
			func() (nvml.Device, nvml.Return) { return g.dev.GetMigDeviceHandleByIndex(i) })
		if errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrUnsupported) {
			continue // indexes have holes; outside MIG mode there is none
		}
		if err != nil {
			return nil, err
		}
		gi, err := ask(g.d, "nvmlDeviceGetGpuInstanceId", h.GetGpuInstanceId)
		if err != nil {
			return nil, err
		}
		// Compute instances of one GPU instance share its memory.
		if !slices.ContainsFunc(out, func(p part) bool { return p.gi == gi }) {
			out = append(out, part{gi, goDevice{g.d, h}})
		}
	}
	return out, nil
}
