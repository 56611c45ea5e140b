// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
)

// emit sends one value.
type emit func(d *prometheus.Desc, v float64, labels ...string)

func to(ch chan<- prometheus.Metric, kind prometheus.ValueType) emit {
	return func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
}

func (c *Collector) gpu(out emit, g *nodev1.GPU) {
	id, index := g.GetUuid(), strconv.Itoa(int(g.GetIndex()))
	out(c.gpuInfo, 1, id, index, g.GetModel(), g.GetPci(), strconv.FormatBool(g.GetMig()))
	out(c.gpuHealthy, truth(g.GetHealth() == "healthy"), id, index, g.GetHealth())
	out(c.gpuTotal, float64(g.GetMemoryBytes()), id, index)
	out(c.gpuReserved, float64(g.GetReservedBytes()), id, index)
	out(c.gpuGranted, float64(g.GetGrantedBytes()), id, index)
	out(c.gpuLent, float64(g.GetLentBytes()), id, index)
	out(c.gpuPercent, float64(g.GetGrantedPercent()), id, index)
	out(c.gpuMemoryOver, float64(max(100, g.GetMemoryOvercommitPercent()))/100, id, index)
	out(c.gpuComputeOver, float64(max(100, g.GetComputeOvercommitPercent()))/100, id, index)
	if g.GetUsedKnown() {
		out(c.gpuUsed, float64(g.GetUsedBytes()), id, index)
	}
	if g.GetUtilization() >= 0 {
		out(c.gpuUtil, float64(g.GetUtilization()), id, index)
	}
}

func (c *Collector) grant(out emit, g *nodev1.Grant) {
	name := nameOf(g)
	out(c.grantInfo, 1, name, g.GetId(), g.GetState(), g.GetLevel(), strconv.FormatUint(uint64(g.GetUid()), 10),
		g.GetPodUid(), g.GetContainer(), g.GetProfile(), g.GetHealth())
	out(c.grantProcs, float64(len(g.GetPids())), name)
	for _, f := range g.GetFragments() {
		out(c.grantLimit, float64(f.GetMemoryBytes()), name, f.GetGpu())
		out(c.grantPercent, float64(f.GetPercent()), name, f.GetGpu())
		if f.GetBurstBytes() > 0 {
			out(c.grantLent, float64(f.GetLentBytes()), name, f.GetGpu())
			out(c.grantBurst, float64(f.GetBurstBytes()), name, f.GetGpu())
		}
		if f.GetUsedKnown() {
			out(c.grantUsed, float64(f.GetUsedBytes()), name, f.GetGpu())
		}
	}
}

// joint tells what a grant shares with others.
func (c *Collector) joint(out emit, g *nodev1.Grant) {
	for _, f := range g.GetJoint() {
		out(c.grantJoint, float64(f.GetMemoryBytes()), nameOf(g), f.GetGpu())
	}
}

// compute tells what holds a grant to its share of compute, and what its programs count of it.
func (c *Collector) compute(gauge, counter emit, g *nodev1.Grant) {
	name, by := nameOf(g), g.GetCompute().GetBy()
	gauge(c.grantCompute, truth(by != "none" && by != ""), name, by)
	for _, f := range g.GetFragments() {
		t, gpu := f.GetTime(), f.GetGpu()
		if t == nil {
			continue
		}
		if t.GetUsedPercent() >= 0 {
			gauge(c.grantTime, float64(t.GetUsedPercent()), name, gpu)
		}
		counter(c.grantCharged, t.GetChargedSeconds(), name, gpu)
		counter(c.grantLaunches, float64(t.GetLaunches()), name, gpu)
		counter(c.grantPast, float64(t.GetLaunchesPastBudget()), name, gpu)
		counter(c.grantWaited, t.GetWaitedSeconds(), name, gpu)
	}
}

// nameOf is the grant's name, or its id where it has none.
func nameOf(g *nodev1.Grant) string {
	if name := g.GetName(); name != "" {
		return name
	}
	return g.GetId()
}
