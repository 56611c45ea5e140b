// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// series numbers Kerf's own names.
type series int

const (
	monitorInfo series = iota
	agentUp
	cycleSeconds
	cycles
	gpuUp
	gpuTotal
	gpuUsed
	gpuSM
	gpuPower
	gpuTemperature
	gpuMemoryExcess
	gpuSMExcess
	usageMemory
	usageSM
	usageDRAM
	usageProcesses
	usagePeak
	usageGuaranteed
	usageBurst
	usageEnergy
	usageActive
	usageObserved
	usageIdle
	grantInfo
	usageCompute
	usageThrottled
	usageEncoder
	usageDecoder
	usageTensor
	usageOccupancy
	usageRefusals
	usageViolations
	usageDetection
)

// describe has the names and helps, by number.
func describe() []family {
	return slices.Concat(ofMonitor(), ofGPUs(), ofUsage(), ofGrants(), ofEngines())
}

func gauge(s series, name, help string, by shape) family {
	return family{number: s, name: name, help: help, shape: by}
}

func counter(s series, name, help string, by shape) family {
	return family{number: s, name: name, help: help, shape: by, counter: true}
}

func ofMonitor() []family {
	return []family{
		gauge(monitorInfo, "kerf_monitor_info", "Versions of monitor and driver, and the source of values; always 1.",
			byMonitor),
		gauge(agentUp, "kerf_monitor_agent_up",
			"1 if the agent answers. If 0, kerf-monitor uses the last known grants.", plain),
		gauge(cycleSeconds, "kerf_monitor_cycle_duration_seconds", "Time of the last sample of all GPUs, in seconds.",
			plain),
		counter(cycles, "kerf_monitor_cycles_total", "Samples of all GPUs since the monitor started.", plain),
	}
}

func ofGPUs() []family {
	return []family{
		gauge(gpuUp, "kerf_gpu_up", "1 if the GPU answered in the last sample, else 0.", byGPU),
		gauge(gpuTotal, "kerf_gpu_memory_total_bytes", "Memory of the GPU, in bytes.", byGPU),
		gauge(gpuUsed, "kerf_gpu_memory_used_bytes", "Used memory of the GPU without the memory that the driver "+
			"reserves, in bytes. It is the sum of kerf_usage_memory_bytes.", byGPU),
		gauge(gpuSM, "kerf_gpu_sm_ratio", "Ratio of time in which the GPU worked, 0 to 1.", byGPU),
		gauge(gpuPower, "kerf_gpu_power_watts", "Power draw of the GPU, in watts.", byGPU),
		gauge(gpuTemperature, "kerf_gpu_temperature_celsius", "Temperature of the GPU, in degrees Celsius.", byGPU),
		gauge(gpuMemoryExcess, "kerf_gpu_memory_excess_bytes", "Memory by which the sum over owners exceeds the "+
			"GPU's used memory, in bytes. The driver reports them at different moments.", byGPU),
		gauge(gpuSMExcess, "kerf_gpu_sm_excess_ratio",
			"Activity by which the sum over owners exceeds the GPU's activity, 0 to 1.", byGPU),
	}
}

func ofUsage() []family {
	return []family{
		gauge(usageMemory, "kerf_usage_memory_bytes",
			"Memory that the owner uses on the GPU, in bytes. The sum over owners is the GPU's used memory.", byValue),
		gauge(usageSM, "kerf_usage_sm_ratio",
			"Ratio of time in which the GPU worked for the owner, 0 to 1 of the whole GPU.", byValue),
		gauge(usageDRAM, "kerf_usage_memory_active_ratio",
			"Ratio of time in which the owner accessed the GPU's memory, 0 to 1 of the whole GPU.", byValue),
		gauge(usageProcesses, "kerf_usage_processes", "Processes of the owner on the GPU.", byOwner),
		gauge(usagePeak, "kerf_usage_memory_peak_bytes",
			"Highest memory in a sample since the monitor or the grant started, in bytes.", byOwner),
		counter(usageEnergy, "kerf_usage_energy_joules_total",
			"Energy that the GPU used for the owner, in joules. Other energy is unattributed.", byOwner),
		counter(usageActive, "kerf_usage_active_seconds_total",
			"Time in which the GPU worked for the owner, in seconds.", byOwner),
		counter(usageObserved, "kerf_usage_observed_seconds_total", "Time in which the owner's activity was known, in "+
			"seconds. Active divided by observed seconds is the mean activity.", byOwner),
		gauge(usageIdle, "kerf_usage_idle_seconds", "Time since the GPU last worked for the grant, in seconds.",
			byOwner),
	}
}

func ofGrants() []family {
	return []family{
		gauge(grantInfo, "kerf_usage_grant_info", "Pod, claim, profile and enforcement level of the grant; always 1.",
			byGrant),
		gauge(usageGuaranteed, "kerf_usage_memory_guaranteed_bytes", "Guaranteed memory of the grant, in bytes.",
			byOwner),
		gauge(usageBurst, "kerf_usage_memory_burst_bytes",
			"Memory that the grant may use above its guarantee now, in bytes.", byOwner),
		gauge(usageCompute, "kerf_usage_compute_granted_ratio",
			"Compute percent of the grant, as a ratio of 0 to 1 of the GPU. Absent for a fair share.", byOwner),
		counter(usageThrottled, "kerf_usage_throttled_seconds_total", "Time that launches waited because of the "+
			"grant's compute percent, in seconds, summed over threads. Only for grants of libkerf.", byValue),
		counter(usageRefusals, "kerf_usage_oom_refusals_total", "Calls that were rejected at the grant's cap, from "+
			"the agent's last report. Absent unless libkerf enforces the cap.", byValue),
		counter(usageViolations, "kerf_usage_cap_violations_total", "Times that the grant was found over its cap "+
			"since the agent started. Absent if the reactive backend does not check the grant.", byValue),
		gauge(usageDetection, "kerf_usage_detection_seconds", "Longest possible time that the grant was over its cap "+
			"before the last detection, in seconds. Absent without a violation.", byValue),
	}
}

func ofEngines() []family {
	return []family{
		gauge(usageEncoder, "kerf_usage_encoder_ratio",
			"Ratio of time in which the GPU encoded video for the owner, 0 to 1 of the GPU.", byValue),
		gauge(usageDecoder, "kerf_usage_decoder_ratio",
			"Ratio of time in which the GPU decoded video for the owner, 0 to 1 of the GPU.", byValue),
		gauge(usageTensor, "kerf_usage_tensor_active_ratio", "Ratio of time in which the tensor pipe worked for the "+
			"owner, 0 to 1 of the whole GPU. Only with DCGM.", byValue),
		gauge(usageOccupancy, "kerf_usage_sm_occupancy_ratio", "Resident warps of the owner divided by the GPU's "+
			"maximum, 0 to 1. Only with DCGM.", byValue),
	}
}

// family describes one name.
type family struct {
	number     series
	name, help string
	shape      shape // of its labels
	counter    bool
}

func (f family) empty() *dto.MetricFamily {
	kind := dto.MetricType_GAUGE
	if f.counter {
		kind = dto.MetricType_COUNTER
	}
	return &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &kind}
}

// shape is a list of label names.
type shape uint8

const (
	plain shape = iota
	byMonitor
	byGrant
	byGPU
	byOwner
	byValue // byOwner, with the attribution of the value
	byField // dcgm-exporter's
)

// names are in the order in which they are exposed, which is the alphabet's.
func (s shape) names() []string {
	switch s {
	case plain:
	case byMonitor:
		return []string{"driver", "source", "version"}
	case byGrant:
		return []string{"claim", "container", "grant", "id", "level", "namespace", "pod", "pod_uid", "profile"}
	case byGPU:
		return []string{"gpu", "gpu_uuid"}
	case byOwner:
		return []string{"container", "gpu", "gpu_uuid", "grant", "instance_profile", "instance_start", "namespace",
			"owner", "pod"}
	case byValue:
		return []string{"attribution", "container", "gpu", "gpu_uuid", "grant", "instance_profile", "instance_start",
			"namespace", "owner", "pod"}
	case byField:
		return []string{
			"DCGM_FI_DRIVER_VERSION", "GPU_I_ID", "GPU_I_PROFILE", "Hostname", "UUID", "container", "device", "gpu",
			"hostname", "modelName", "namespace", "pci_bus_id", "pod",
		}
	}
	return nil
}

// values are a row's labels, by the shape's names.
type values [13]string

// row is what a set of label pairs is known by.
type row struct {
	shape  shape
	values values
}

// labels keeps the label pairs of rows from one scrape to the next, because making them is most of what a scrape costs.
// What a scrape does not use is forgotten with the next, so that it is as large as what is exposed.
type labels struct {
	before, now map[row][]*dto.LabelPair
}

// next begins a scrape.
func (l *labels) next() {
	l.before, l.now = l.now, make(map[row][]*dto.LabelPair, len(l.now))
}

func (l *labels) of(s shape, v values) []*dto.LabelPair {
	if s == plain {
		return nil
	}
	k := row{s, v}
	pairs, ok := l.now[k]
	if ok {
		return pairs
	}
	if pairs, ok = l.before[k]; !ok {
		names := s.names()
		cells := make([]pair, len(names))
		for i, name := range names {
			cells[i].name, cells[i].value = name, strings.ToValidUTF8(v[i], "\uFFFD")
			cells[i].LabelPair.Name, cells[i].LabelPair.Value = &cells[i].name, &cells[i].value
			pairs = append(pairs, &cells[i].LabelPair)
		}
	}
	l.now[k] = pairs
	return pairs
}

// pair is a label pair with its strings, in one allocation.
type pair struct {
	dto.LabelPair
	name, value string
}

// ParseFields reads dcgm-exporter's field file: lines of "FIELD, gauge
// counter
// label, help", comments after "#". The second result names fields that the monitor does not have; this is no error,
// because the file works for dcgm-exporter. It ignores labels, because the driver's version is always one. The error
// has a *sharing.FieldError for each invalid line and each repeated field.
func ParseFields(text string) ([]collect.FieldInfo, []string, error) {
	known := map[string]collect.FieldInfo{}
	for _, f := range collect.Fields() {
		known[f.Name] = f
	}
	seen, fields := map[string]bool{}, []collect.FieldInfo{}
	var others []string
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		where := "line " + strconv.Itoa(n)
		parts := strings.SplitN(line, ",", 3)
		if len(parts) != 3 {
			errs = append(errs, sharing.Invalid(where, line, "write FIELD, gauge, help", "has %d columns", len(parts)))
			continue
		}
		name, kind, help := strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1]), strings.TrimSpace(parts[2])
		if seen[name] {
			errs = append(errs, sharing.Invalid(where, name, "take one of the lines out", "stands twice"))
			continue
		}
		seen[name] = true
		f, ok := known[name]
		switch kind {
		case "gauge":
			f.Kind = collect.Gauge
		case "counter":
			f.Kind = collect.Counter
		case "label":
			continue
		default:
			errs = append(errs, sharing.Invalid(where, kind, "write gauge, counter or label", "is not a kind"))
			continue
		}
		if !ok {
			others = append(others, name)
			continue
		}
		if help != "" {
			f.Help = help
		}
		fields = append(fields, f)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return fields, others, nil
}
