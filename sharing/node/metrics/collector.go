// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics is the agent's exposition: what the node API shows, as Prometheus metrics, and counters of
// what the runtime did.
//
// It promises that a value which is not known is absent, never zero, and that the number of series is
// bounded by GPUs and living grants. Labels that a user chose (a grant's name) were validated before they
// reach it.
//
// It does not sample by itself: each scrape asks the node once.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
)

// scrapeDeadline bounds how long one scrape may wait for the driver.
const scrapeDeadline = 5 * time.Second

// Collector turns the node's state into metrics at each scrape.
type Collector struct {
	state func(context.Context) *nodev1.GetNodeResponse

	ready, info                                                         *prometheus.Desc
	gpuTotal, gpuReserved, gpuUsed, gpuGranted, gpuPercent, gpuUtil     *prometheus.Desc
	gpuLent, grantLent, grantBurst, grantJoint                          *prometheus.Desc
	gpuMemoryOver, gpuComputeOver                                       *prometheus.Desc
	gpuHealthy, gpuInfo                                                 *prometheus.Desc
	grantCompute, grantTime, grantCharged, grantLaunches                *prometheus.Desc
	grantPast, grantWaited                                              *prometheus.Desc
	grantUsed, grantLimit, grantPercent, grantProcs, grantInfo, configE *prometheus.Desc
	configInfo, configWaiting                                           *prometheus.Desc
}

// NewCollector makes a collector over a function that returns one picture of the node.
func NewCollector(state func(context.Context) *nodev1.GetNodeResponse) *Collector {
	gpu := []string{"uuid", "index"}
	grant := []string{"grant", "uuid"}
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Collector{
		state:          state,
		ready:          d("kerf_agent_ready", "1 when claims are taken, else 0."),
		info:           d("kerf_agent_info", "Versions; always 1.", "version", "driver"),
		configE:        d("kerf_config_errors", "Mistakes of a newer configuration that was refused; 0 when the newest is in force."),
		configInfo:     d("kerf_config_info", "The configuration in force; always 1. sha256 is empty for the built-in default.", "sha256", "pool"),
		configWaiting:  d("kerf_config_waiting_gpus", "GPUs whose settings by the configuration in force wait for those who use them."),
		gpuTotal:       d("kerf_gpu_memory_total_bytes", "Whole memory of the GPU.", gpu...),
		gpuReserved:    d("kerf_gpu_memory_reserved_bytes", "The driver's own part of the memory.", gpu...),
		gpuUsed:        d("kerf_gpu_memory_used_bytes", "Memory in use, as the driver counts it; absent when not known.", gpu...),
		gpuGranted:     d("kerf_gpu_memory_granted_bytes", "Memory held by grants: what they are guaranteed.", gpu...),
		gpuLent:        d("kerf_gpu_memory_lent_bytes", "Memory that grants may use beyond what they are guaranteed, until it is claimed.", gpu...),
		gpuPercent:     d("kerf_gpu_compute_granted_percent", "Compute share held by grants, 0 to 100, or more where it is overcommitted.", gpu...),
		gpuMemoryOver:  d("kerf_gpu_memory_overcommit_ratio", "How often the GPU's memory may be granted in fractions; above 1 the driver may refuse a program what is below its cap.", gpu...),
		gpuComputeOver: d("kerf_gpu_compute_overcommit_ratio", "How often the GPU's compute may be granted in fractions.", gpu...),
		gpuUtil:        d("kerf_gpu_utilization_percent", "Utilisation over the driver's last sample; absent when not known.", gpu...),
		gpuHealthy:     d("kerf_gpu_healthy", "1 when the GPU takes new grants by its health, else 0; the state is a label.", "uuid", "index", "health"),
		gpuInfo:        d("kerf_gpu_info", "Identity of the GPU; always 1.", "uuid", "index", "model", "pci", "mig"),
		grantUsed:      d("kerf_grant_memory_used_bytes", "Memory that the grant uses on this GPU; absent when not known.", grant...),
		grantLimit:     d("kerf_grant_memory_limit_bytes", "Memory that the grant is guaranteed on this GPU, and may use.", grant...),
		grantLent:      d("kerf_grant_memory_lent_bytes", "Memory that the grant may use beyond its guarantee now; only of grants that may burst.", grant...),
		grantBurst:     d("kerf_grant_memory_burst_bytes", "The most that guaranteed and lent memory may be together; only of grants that may burst.", grant...),
		grantJoint:     d("kerf_grant_memory_joint_bytes", "Memory that the grants which share one cap may use together; only of these.", grant...),
		grantPercent:   d("kerf_grant_compute_percent", "Compute share of this GPU; 0 is a fair share.", grant...),
		grantCompute:   d("kerf_grant_compute_enforced", "1 when something holds the grant to its compute share, else 0; what does is a label.", "grant", "by"),
		grantTime:      d("kerf_grant_gpu_time_percent", "Percent of the last ten seconds that the grant used of this GPU, by the driver's samples; absent when unknown.", grant...),
		grantCharged:   d("kerf_grant_gpu_time_charged_seconds_total", "GPU time that launches were charged, at the rate that the driver's samples imply; only of grants whose programs count it, as are the next three.", grant...),
		grantLaunches:  d("kerf_grant_launches_total", "Launches that were charged.", grant...),
		grantPast:      d("kerf_grant_launches_past_budget_total", "Launches that ran on without a budget, because no agent refilled it, or copies that had waited for a second.", grant...),
		grantWaited:    d("kerf_grant_launch_wait_seconds_total", "How long launches waited for a budget, summed over threads.", grant...),
		grantProcs:     d("kerf_grant_processes", "Processes in the grant's cgroup.", "grant"),
		grantInfo:      d("kerf_grant_info", "Facts of the grant; always 1.", "grant", "id", "state", "level", "uid", "pod_uid", "container", "profile", "health"),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.ready, c.info, c.configE, c.configInfo, c.configWaiting, c.gpuTotal, c.gpuReserved, c.gpuUsed, c.gpuGranted, c.gpuPercent, c.gpuUtil, c.gpuHealthy,
		c.gpuInfo, c.gpuLent, c.gpuMemoryOver, c.gpuComputeOver, c.grantLent, c.grantBurst, c.grantJoint, c.grantUsed, c.grantLimit, c.grantPercent, c.grantProcs, c.grantInfo,
		c.grantCompute, c.grantTime, c.grantCharged, c.grantLaunches, c.grantPast, c.grantWaited,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeDeadline)
	defer cancel()
	s := c.state(ctx)
	gauge, counter := to(ch, prometheus.GaugeValue), to(ch, prometheus.CounterValue)
	gauge(c.ready, truth(s.GetReady()))
	gauge(c.info, 1, s.GetAgentVersion(), s.GetDriverVersion())
	gauge(c.configE, float64(len(s.GetConfig().GetErrors())))
	gauge(c.configInfo, 1, s.GetConfig().GetSha256(), s.GetConfig().GetPool())
	gauge(c.configWaiting, float64(len(s.GetConfig().GetWaiting())))
	for _, g := range s.GetGpus() {
		c.gpu(gauge, g)
	}
	for _, g := range s.GetGrants() {
		c.grant(gauge, g)
		c.joint(gauge, g)
		c.compute(gauge, counter, g)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
