// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// Collector turns the newest snapshot into metrics at each scrape.
type Collector struct {
	latest  func() *collect.Snapshot
	version string
	dcgm    dcgm

	info, agent, took, cycles                              *prometheus.Desc
	up, total, used, sm, power, temperature, xs, xm        *prometheus.Desc
	memory, peak, limit, lent, uSM, uDRAM, joules          *prometheus.Desc
	active, idle, watched, procs, grantInfo, computeGrants *prometheus.Desc
}

// Options say what is exposed.
type Options struct {
	// Latest returns the newest snapshot, or nil.
	Latest func() *collect.Snapshot
	// Version is the monitor's, and Hostname the node's, as labels.
	Version, Hostname string
	// Fields are those that are exposed under dcgm-exporter's names; nil means all.
	Fields []collect.FieldInfo
}

// New makes a collector.
func New(o Options) *Collector {
	gpu := []string{"uuid", "index"}
	// owner is grant, stranger or unattributed; known is how the value is known.
	use := []string{"uuid", "index", "owner", "grant", "namespace", "pod", "container", "instance_profile", "instance_start"}
	knownUse := append(append([]string{}, use...), "known")
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Collector{
		latest: o.Latest, version: o.Version, dcgm: newDCGM(o.Fields, o.Hostname),
		info:   d("kerf_monitor_info", "Version, and where values come from; always 1.", "version", "source", "driver"),
		agent:  d("kerf_monitor_agent_up", "1 while the agent tells of its grants; while it is 0, those that it told of last are used."),
		took:   d("kerf_monitor_cycle_duration_seconds", "How long the newest sample of all GPUs took."),
		cycles: d("kerf_monitor_cycles_total", "Samples of all GPUs since the monitor started."),

		up:          d("kerf_device_up", "1 when the GPU answered in the newest sample, else 0.", gpu...),
		total:       d("kerf_device_memory_total_bytes", "Memory of the GPU.", gpu...),
		used:        d("kerf_device_memory_used_bytes", "Memory in use, without the driver's own part; the sum of kerf_use_memory_bytes.", gpu...),
		sm:          d("kerf_device_sm_ratio", "Part of the time in which the GPU worked, 0 to 1.", gpu...),
		power:       d("kerf_device_power_watts", "Power drawn.", gpu...),
		temperature: d("kerf_device_temperature_celsius", "Temperature of the GPU.", gpu...),
		xm:          d("kerf_device_memory_excess_bytes", "By how much the parts of the memory are more than the whole, because the driver was asked at different moments.", gpu...),
		xs:          d("kerf_device_sm_excess_ratio", "By how much the parts of the activity are more than the whole.", gpu...),

		memory: d("kerf_use_memory_bytes", "Memory in use by the owner; over all owners it is what the GPU has in use.", knownUse...),
		uSM:    d("kerf_use_sm_ratio", "Part of the time in which the GPU worked for the owner, 0 to 1 of the whole GPU.", knownUse...),
		uDRAM:  d("kerf_use_memory_active_ratio", "Part of the time in which the GPU's memory was accessed for the owner, 0 to 1 of the whole GPU.", knownUse...),
		procs:  d("kerf_use_processes", "Processes of the owner on the GPU.", use...),
		peak:   d("kerf_use_memory_peak_bytes", "The most memory in any sample since the monitor or the grant started.", use...),
		limit:  d("kerf_use_memory_limit_bytes", "Memory that the grant is guaranteed.", use...),
		lent:   d("kerf_use_memory_lent_bytes", "Memory that the grant may use beyond its guarantee now.", use...),
		joules: d("kerf_use_energy_joules_total", "Energy that the GPU used for the owner; what it used for nobody is unattributed.", use...),
		active: d("kerf_use_active_seconds_total", "How long the GPU worked for the owner.", use...),
		watched: d("kerf_use_watched_seconds_total",
			"How long it was known whether the GPU worked for the owner; active over watched seconds is the mean activity.", use...),
		idle:          d("kerf_use_idle_seconds", "How long the GPU has not worked for the grant.", use...),
		grantInfo:     d("kerf_use_grant_info", "Facts of the grant; always 1.", "grant", "id", "namespace", "pod", "pod_uid", "container", "profile", "level"),
		computeGrants: d("kerf_use_compute_limit_ratio", "Share of the GPU's compute that the grant has; absent for a fair share.", use...),
	}
}

// Describe implements prometheus.Collector. Which fields a GPU tells is not known beforehand, so that the collector is
// an unchecked one.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// emit sends one value.
type emit func(d *prometheus.Desc, v float64, labels ...string)

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.latest()
	if s == nil {
		return
	}
	to := func(kind prometheus.ValueType) emit {
		return func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
		}
	}
	gauge, counter := to(prometheus.GaugeValue), to(prometheus.CounterValue)
	gauge(c.info, 1, c.version, s.Source, s.Driver)
	gauge(c.agent, truth(s.Agent))
	gauge(c.took, s.Took.Seconds())
	counter(c.cycles, float64(s.Seq))
	for _, g := range s.Grants {
		gauge(c.grantInfo, 1, g.Name, g.ID, g.Namespace, g.Pod, g.PodUID, g.Container, g.Profile, g.Level)
	}
	for _, g := range s.GPUs {
		c.device(gauge, g)
		if g.Err == nil {
			c.owners(gauge, counter, s, g)
			c.dcgm.gpu(gauge, counter, s, g)
		}
	}
}

func (c *Collector) device(out emit, g collect.GPU) {
	id, index := string(g.Info.UUID), strconv.Itoa(g.Info.Index)
	out(c.up, truth(g.Err == nil), id, index)
	if g.Err != nil {
		return
	}
	if v, ok := g.Fields[collect.FieldMemoryTotal]; ok {
		out(c.total, v*float64(sharing.MiB), id, index)
	}
	if g.Device.Memory.Known {
		out(c.used, float64(g.Device.Memory.Value), id, index)
		out(c.xm, float64(g.Use.Excess.Memory), id, index)
	}
	if g.Device.SM.Known {
		out(c.sm, float64(g.Device.SM.Value), id, index)
		out(c.xs, float64(g.Use.Excess.SM), id, index)
	}
	if v, ok := g.Fields[collect.FieldPower]; ok {
		out(c.power, v, id, index)
	}
	if v, ok := g.Fields[collect.FieldTemperature]; ok {
		out(c.temperature, v, id, index)
	}
}

// owners exposes a GPU's use by whose it is.
func (c *Collector) owners(gauge, counter emit, s *collect.Snapshot, g collect.GPU) {
	id, index := string(g.Info.UUID), strconv.Itoa(g.Info.Index)
	for _, u := range g.Use.Grants {
		grant := s.Grants[u.Grant]
		labels := []string{id, index, "grant", grant.Name, grant.Namespace, grant.Pod, grant.Container, u.Slot.Profile, start(u.Slot)}
		c.use(gauge, u.Use, labels)
		if limit, ok := grant.CapOn(g.Info.UUID, u.Slot); ok {
			gauge(c.limit, float64(limit.Memory), labels...)
			gauge(c.lent, float64(limit.Lent), labels...)
			if limit.Percent > 0 {
				gauge(c.computeGrants, float64(limit.Percent)/float64(sharing.FullGPU), labels...)
			}
		}
		if t, ok := g.Totals[attribution.Place{Grant: u.Grant, GPU: g.Info.UUID, Slot: u.Slot}]; ok {
			c.totals(gauge, counter, t, labels)
			if t.Watched > 0 {
				gauge(c.idle, t.Idle.Seconds(), labels...)
			}
		}
	}
	others := func(owner string, u attribution.Use, at attribution.Place) {
		labels := []string{id, index, owner, "", "", "", "", "", ""}
		c.use(gauge, u, labels)
		if t, ok := g.Totals[at]; ok && t.Energy.Known() {
			counter(c.joules, float64(t.Energy.Value), labels...)
		}
	}
	others("stranger", g.Use.Strangers, attribution.Place{GPU: g.Info.UUID, Stranger: true})
	others(attribution.Unattributed.String(), g.Use.Rest, attribution.Place{GPU: g.Info.UUID})
}

func (c *Collector) use(out emit, u attribution.Use, labels []string) {
	known := func(h attribution.How) []string { return append(append([]string{}, labels...), h.String()) }
	if u.Memory.Known() {
		out(c.memory, float64(u.Memory.Value), known(u.Memory.How)...)
	}
	if u.SM.Known() {
		out(c.uSM, float64(u.SM.Value), known(u.SM.How)...)
	}
	if u.DRAM.Known() {
		out(c.uDRAM, float64(u.DRAM.Value), known(u.DRAM.How)...)
	}
	out(c.procs, float64(u.Processes), labels...)
}

func (c *Collector) totals(gauge, counter emit, t attribution.Total, labels []string) {
	if t.Peak.Known() {
		gauge(c.peak, float64(t.Peak.Value), labels...)
	}
	if t.Energy.Known() {
		counter(c.joules, float64(t.Energy.Value), labels...)
	}
	if t.Watched > 0 {
		counter(c.active, t.Active.Seconds(), labels...)
		counter(c.watched, t.Watched.Seconds(), labels...)
	}
}

func start(s attribution.Slot) string {
	if s == (attribution.Slot{}) {
		return ""
	}
	return strconv.Itoa(s.Start)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
