// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import dto "github.com/prometheus/client_model/go"

// series numbers Kerf's own names.
type series int

const (
	monitorInfo series = iota
	agentUp
	cycleSeconds
	cycles
	deviceUp
	deviceTotal
	deviceUsed
	deviceSM
	devicePower
	deviceTemperature
	deviceMemoryExcess
	deviceSMExcess
	useMemory
	useSM
	useDRAM
	useProcesses
	usePeak
	useLimit
	useLent
	useEnergy
	useActive
	useWatched
	useIdle
	grantInfo
	useComputeLimit
	useThrottled
	useEncoder
	useDecoder
	useTensor
	useOccupancy
	useRefusals
	useViolations
	useDelay
)

// describe has the names and helps, by number.
func describe() []family {
	gauge := func(s series, name, help string) family { return family{s, name, help, false} }
	counter := func(s series, name, help string) family { return family{s, name, help, true} }
	return []family{
		gauge(monitorInfo, "kerf_monitor_info", "Version, and where values come from; always 1."),
		gauge(agentUp, "kerf_monitor_agent_up", "1 while the agent tells of its grants; while it is 0, those that it told of last are used."),
		gauge(cycleSeconds, "kerf_monitor_cycle_duration_seconds", "How long the newest sample of all GPUs took."),
		counter(cycles, "kerf_monitor_cycles_total", "Samples of all GPUs since the monitor started."),

		gauge(deviceUp, "kerf_device_up", "1 when the GPU answered in the newest sample, else 0."),
		gauge(deviceTotal, "kerf_device_memory_total_bytes", "Memory of the GPU."),
		gauge(deviceUsed, "kerf_device_memory_used_bytes", "Memory in use, without the driver's own part; the sum of kerf_use_memory_bytes."),
		gauge(deviceSM, "kerf_device_sm_ratio", "Part of the time in which the GPU worked, 0 to 1."),
		gauge(devicePower, "kerf_device_power_watts", "Power drawn."),
		gauge(deviceTemperature, "kerf_device_temperature_celsius", "Temperature of the GPU."),
		gauge(deviceMemoryExcess, "kerf_device_memory_excess_bytes", "By how much the parts of the memory are more than the whole, because the driver was asked at different moments."),
		gauge(deviceSMExcess, "kerf_device_sm_excess_ratio", "By how much the parts of the activity are more than the whole."),

		gauge(useMemory, "kerf_use_memory_bytes", "Memory in use by the owner; over all owners it is what the GPU has in use."),
		gauge(useSM, "kerf_use_sm_ratio", "Part of the time in which the GPU worked for the owner, 0 to 1 of the whole GPU."),
		gauge(useDRAM, "kerf_use_memory_active_ratio", "Part of the time in which the GPU's memory was accessed for the owner, 0 to 1 of the whole GPU."),
		gauge(useProcesses, "kerf_use_processes", "Processes of the owner on the GPU."),
		gauge(usePeak, "kerf_use_memory_peak_bytes", "The most memory in any sample since the monitor or the grant started."),
		gauge(useLimit, "kerf_use_memory_limit_bytes", "Memory that the grant is guaranteed."),
		gauge(useLent, "kerf_use_memory_lent_bytes", "Memory that the grant may use beyond its guarantee now."),
		counter(useEnergy, "kerf_use_energy_joules_total", "Energy that the GPU used for the owner; what it used for nobody is unattributed."),
		counter(useActive, "kerf_use_active_seconds_total", "How long the GPU worked for the owner."),
		counter(useWatched, "kerf_use_watched_seconds_total", "How long it was known whether the GPU worked for the owner; active over watched seconds is the mean activity."),
		gauge(useIdle, "kerf_use_idle_seconds", "How long the GPU has not worked for the grant."),
		gauge(grantInfo, "kerf_use_grant_info", "Facts of the grant; always 1."),
		gauge(useComputeLimit, "kerf_use_compute_limit_ratio", "Share of the GPU's compute that the grant has; absent for a fair share."),
		counter(useThrottled, "kerf_use_throttled_seconds_total", "How long launches waited for the grant's share of time, summed over threads, as the agent told last; only where programs count it."),
		gauge(useEncoder, "kerf_use_encoder_ratio", "Part of the time in which video was encoded for the owner, 0 to 1 of the GPU."),
		gauge(useDecoder, "kerf_use_decoder_ratio", "Part of the time in which video was decoded for the owner, 0 to 1 of the GPU."),
		gauge(useTensor, "kerf_use_tensor_active_ratio", "Part of the time in which the tensor pipe was active for the owner, 0 to 1 of the whole GPU; only with DCGM."),
		gauge(useOccupancy, "kerf_use_sm_occupancy_ratio", "Part of the most warps that could have been resident which were the owner's, 0 to 1 of the whole GPU; only with DCGM."),
		counter(useRefusals, "kerf_use_oom_refusals_total", "Calls that were refused because the grant's cap left no room, as the agent told last; absent where the driver, MPS or a MIG instance refuses, of which none tells."),
		counter(useViolations, "kerf_use_cap_violations_total", "Times that the grant was found past its cap since the agent started; only where it is watched."),
		gauge(useDelay, "kerf_use_detection_delay_seconds", "For how long at most the grant had been past its cap when that was found last; only after it was."),
	}
}

// family describes one name.
type family struct {
	number     series
	name, help string
	counter    bool
}

func (f family) empty() *dto.MetricFamily {
	kind := dto.MetricType_GAUGE
	if f.counter {
		kind = dto.MetricType_COUNTER
	}
	return &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &kind}
}
