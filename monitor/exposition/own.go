// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"strconv"

	dto "github.com/prometheus/client_model/go"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// all exposes the snapshot.
func (s *scrape) all() {
	n := s.snapshot
	s.put(monitorInfo, 1, s.labels.of(byMonitor, values{n.Driver, n.Source, s.opts.Version}))
	s.put(agentUp, truth(n.Agent), nil)
	s.put(cycleSeconds, n.Took.Seconds(), nil)
	s.put(cycles, float64(n.Seq), nil)
	for _, g := range n.Grants {
		s.put(grantInfo, 1, s.labels.of(byGrant, values{sharing.ClaimNames(g.Claims), g.Container, g.Name, g.ID,
			g.Level, g.Namespace, g.Pod, g.PodUID, g.Profile}))
	}
	for _, g := range n.GPUs {
		s.device(g)
		if g.Err == nil {
			s.owners(g)
			s.gpuFields(g)
		}
	}
}

func (s *scrape) device(g collect.GPU) {
	at := s.labels.of(byGPU, values{strconv.Itoa(g.Info.Index), string(g.Info.UUID)})
	s.put(gpuUp, truth(g.Err == nil), at)
	if g.Err != nil {
		return
	}
	if v, ok := g.Fields[collect.FieldMemoryTotal]; ok {
		s.put(gpuTotal, v*float64(sharing.MiB), at)
	}
	if g.Device.Memory.Known {
		s.put(gpuUsed, float64(g.Device.Memory.Value), at)
		s.put(gpuMemoryExcess, float64(g.Use.Excess.Memory), at)
	}
	if g.Device.SM.Known {
		s.put(gpuSM, float64(g.Device.SM.Value), at)
		s.put(gpuSMExcess, float64(g.Use.Excess.SM), at)
	}
	if v, ok := g.Fields[collect.FieldPower]; ok {
		s.put(gpuPower, v, at)
	}
	if v, ok := g.Fields[collect.FieldTemperature]; ok {
		s.put(gpuTemperature, v, at)
	}
}

// owner is whose a use is, with its labels: as they are, and with how a value is known.
type owner struct {
	*scrape
	values values // of byOwner
	labels []*dto.LabelPair
}

func (s *scrape) owner(v values) owner { return owner{s, v, s.labels.of(byOwner, v)} }

// by are the labels of a value with that attribution, which is the first label.
func (o owner) by(h attribution.How) []*dto.LabelPair {
	v := values{h.String()}
	copy(v[1:], o.values[:])
	return o.scrape.labels.of(byValue, v)
}

// owners exposes a GPU's use by whose it is.
func (s *scrape) owners(g collect.GPU) {
	id, index := string(g.Info.UUID), strconv.Itoa(g.Info.Index)
	for _, u := range g.Use.Grants {
		grant := s.snapshot.Grants[u.Grant]
		gpu := sharing.GPURef{UUID: g.Info.UUID, Instance: u.Instance}
		o := s.owner(values{grant.Container, index, id, grant.Name, u.Instance.Profile, start(u.Instance),
			grant.Namespace, "grant", grant.Pod})
		o.use(u.Use)
		if granted, ok := grant.CapOn(gpu); ok {
			o.grant(granted)
		}
		if t, ok := g.Totals[attribution.Place{Grant: u.Grant, GPU: gpu}]; ok {
			o.totals(t)
		}
	}
	others := func(name string, u attribution.Use, at attribution.Place) {
		o := s.owner(values{1: index, 2: id, 7: name})
		o.use(u)
		if t, ok := g.Totals[at]; ok && t.Energy.Known() {
			o.put(usageEnergy, float64(t.Energy.Value), o.labels)
		}
	}
	others("unmanaged", g.Use.Unmanaged, attribution.Place{GPU: sharing.GPURef{UUID: g.Info.UUID}, Unmanaged: true})
	others(attribution.Unattributed.String(), g.Use.Rest, attribution.Place{GPU: sharing.GPURef{UUID: g.Info.UUID}})
}

func (o owner) use(u attribution.Use) {
	if u.Memory.Known() {
		o.put(usageMemory, float64(u.Memory.Value), o.by(u.Memory.How))
	}
	if u.SM.Known() {
		o.put(usageSM, float64(u.SM.Value), o.by(u.SM.How))
	}
	if u.DRAM.Known() {
		o.put(usageDRAM, float64(u.DRAM.Value), o.by(u.DRAM.How))
	}
	for _, e := range [...]struct {
		series series
		amount attribution.Amount[attribution.Ratio]
	}{
		{usageEncoder, u.Engines.Encoder}, {usageDecoder, u.Engines.Decoder}, {usageTensor, u.Engines.Tensor},
		{usageOccupancy, u.Engines.Occupancy},
	} {
		if e.amount.Known() {
			o.put(e.series, float64(e.amount.Value), o.by(e.amount.How))
		}
	}
	o.put(usageProcesses, float64(u.Processes), o.labels)
}

func (o owner) grant(c collect.Cap) {
	o.put(usageGuaranteed, float64(c.Memory), o.labels)
	o.put(usageBurst, float64(c.Burst), o.labels)
	if c.Percent > 0 {
		o.put(usageCompute, float64(c.Percent)/float64(sharing.FullGPU), o.labels)
	}
	if c.Timed {
		o.put(usageThrottled, c.Throttled.Seconds(), o.by(attribution.ByProcess))
	}
	if c.Events.Counted {
		o.put(usageRefusals, float64(c.Events.Refused), o.by(attribution.ByProcess))
	}
	if c.Events.Watched {
		o.put(usageViolations, float64(c.Events.Violations), o.by(attribution.ByProcess))
	}
	if c.Events.Violations > 0 {
		o.put(usageDetection, c.Events.Delay.Seconds(), o.by(attribution.ByProcess))
	}
}

func (o owner) totals(t attribution.Total) {
	if t.Peak.Known() {
		o.put(usagePeak, float64(t.Peak.Value), o.labels)
	}
	if t.Energy.Known() {
		o.put(usageEnergy, float64(t.Energy.Value), o.labels)
	}
	if t.Watched > 0 {
		o.put(usageActive, t.Active.Seconds(), o.labels)
		o.put(usageObserved, t.Watched.Seconds(), o.labels)
		o.put(usageIdle, t.Idle.Seconds(), o.labels)
	}
}

func start(s sharing.InstanceRef) string {
	if s.None() {
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
