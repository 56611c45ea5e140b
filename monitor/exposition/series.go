// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
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
		gauge(agentUp, "kerf_monitor_agent_up", "1 if the agent answers. If 0, kerf-monitor uses the last known grants."),
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
		counter(useEnergy, "kerf_use_energy_joules_total", "Energy that the GPU used for the owner. Other energy is unattributed."),
		counter(useActive, "kerf_use_active_seconds_total", "How long the GPU worked for the owner."),
		counter(useWatched, "kerf_use_watched_seconds_total", "How long it was known whether the GPU worked for the owner; active over watched seconds is the mean activity."),
		gauge(useIdle, "kerf_use_idle_seconds", "How long the GPU has not worked for the grant."),
		gauge(grantInfo, "kerf_use_grant_info", "Facts of the grant; always 1."),
		gauge(useComputeLimit, "kerf_use_compute_limit_ratio", "Share of the GPU's compute that the grant has; absent for a fair share."),
		counter(useThrottled, "kerf_use_throttled_seconds_total", "Time that launches waited for the grant's compute share, summed over threads. Only for grants of libkerf."),
		gauge(useEncoder, "kerf_use_encoder_ratio", "Part of the time in which video was encoded for the owner, 0 to 1 of the GPU."),
		gauge(useDecoder, "kerf_use_decoder_ratio", "Part of the time in which video was decoded for the owner, 0 to 1 of the GPU."),
		gauge(useTensor, "kerf_use_tensor_active_ratio", "Part of the time in which the tensor pipe was active for the owner, 0 to 1 of the whole GPU; only with DCGM."),
		gauge(useOccupancy, "kerf_use_sm_occupancy_ratio", "Part of the most warps that could have been resident which were the owner's, 0 to 1 of the whole GPU; only with DCGM."),
		counter(useRefusals, "kerf_use_oom_refusals_total", "Calls that were rejected at the grant's cap, from the agent's last report. Absent unless libkerf enforces the cap."),
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

// shape is a list of label names.
type shape uint8

const (
	plain shape = iota
	byMonitor
	byGrant
	byGPU
	byOwner
	byKnown // byOwner, with how the value is known
	byField // dcgm-exporter's
)

// names are in the order in which they are exposed, which is the alphabet's.
func (s shape) names() []string {
	switch s {
	case plain:
	case byMonitor:
		return []string{"driver", "source", "version"}
	case byGrant:
		return []string{"container", "grant", "id", "level", "namespace", "pod", "pod_uid", "profile"}
	case byGPU:
		return []string{"index", "uuid"}
	case byOwner:
		return []string{"container", "grant", "index", "instance_profile", "instance_start", "namespace", "owner", "pod", "uuid"}
	case byKnown:
		return []string{"container", "grant", "index", "instance_profile", "instance_start", "known", "namespace", "owner", "pod", "uuid"}
	case byField:
		return []string{
			"DCGM_FI_DRIVER_VERSION", "GPU_I_ID", "GPU_I_PROFILE", "Hostname", "UUID", "container", "device", "gpu", "hostname", "modelName", "namespace", "pci_bus_id", "pod",
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

// pair is a label pair with its strings, in one piece of memory.
type pair struct {
	dto.LabelPair
	name, value string
}

// ParseFields reads the file by which dcgm-exporter is told what to expose: lines of "FIELD, gauge|counter|label,
// help", comments after "#". Second come the names of fields that the monitor does not have, which is no
// error, since the file is one that works for dcgm-exporter; labels are passed over, because the driver's version is always one. The
// error holds a *sharing.FieldError for each line that is none, and for a field that stands twice.
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
