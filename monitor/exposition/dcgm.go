// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// who is whose a field's value is.
type who struct {
	profile, instance         string
	container, namespace, pod string
}

func (a who) compare(b who) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod),
		cmp.Compare(a.container, b.container),
		cmp.Compare(a.profile, b.profile), cmp.Compare(a.instance, b.instance))
}

// gpuFields exposes fields as dcgm-exporter does. Memory used and the activity of the GPU and of its memory have
// owners. Each grant has a row, and one row without a pod has the rest. Four also have a row per MIG instance. All
// others have one row, with the pod if one pod has the whole GPU.
//
// The node has both names that dcgm-exporter gave it: Hostname, and since May 2026 hostname. Dashboards ask for either.
func (s *scrape) gpuFields(g collect.GPU) {
	index, device, bus := strconv.Itoa(g.Info.Index), "nvidia"+strconv.Itoa(g.Info.Minor), busID(g.Info.PCI)
	labels := func(w who) []*dto.LabelPair {
		return s.labels.of(byField, values{
			s.snapshot.Driver, w.instance, w.profile, s.opts.Hostname, string(g.Info.UUID), w.container, device, index,
			s.opts.Hostname, g.Info.Model, w.namespace, bus, w.pod,
		})
	}
	whole := who{}
	if grant, ok := s.snapshot.Whole(g.Info.UUID); ok {
		whole = who{container: grant.Container, namespace: grant.Namespace, pod: grant.Pod}
	}
	all := labels(whole)
	for i, f := range s.opts.Fields {
		for _, in := range g.Device.Instances {
			if v := ofInstance(f.Field, in); v.Known {
				s.add(s.fields[i], float64(v.Value), labels(s.holder(g, in)))
			}
		}
		value, ok := g.Fields[f.Field]
		if !ok {
			continue
		}
		of := useOf(f.Field)
		if of == nil || len(g.Use.Grants) == 0 {
			s.add(s.fields[i], value, all)
			continue
		}
		rows := s.rows(g, of)
		for _, w := range slices.SortedFunc(maps.Keys(rows), who.compare) {
			s.add(s.fields[i], rows[w], labels(w))
		}
	}
}

// rows are one field's values by owner. Equal labels share a row: grants outside pods are in the row without a pod.
func (s *scrape) rows(g collect.GPU, of func(attribution.Use) (v float64, known bool)) map[who]float64 {
	rows := make(map[who]float64, len(g.Use.Grants)+1)
	add := func(u attribution.Use, w who) {
		if v, known := of(u); known {
			rows[w] += v
		}
	}
	if _, known := of(g.Use.Rest); known {
		add(g.Use.Rest, who{})
		add(g.Use.Unmanaged, who{})
	}
	for _, u := range g.Use.Grants {
		add(u.Use, whoOf(s.snapshot.Grants[u.Grant], g, u.Instance))
	}
	return rows
}

// whoOf has a grant's pod and MIG instance as labels.
func whoOf(grant collect.Grant, g collect.GPU, instance sharing.InstanceRef) who {
	r := who{profile: instance.Profile, container: grant.Container, namespace: grant.Namespace, pod: grant.Pod}
	for _, in := range g.Device.Instances {
		if in.Ref == instance {
			r.instance = strconv.Itoa(in.GI)
		}
	}
	return r
}

// ofInstance is what a MIG instance tells of a field, as a part of the instance.
func ofInstance(f collect.Field, in attribution.Instance) attribution.Reading[attribution.Ratio] {
	switch f { //nolint:exhaustive // the others exist for GPUs alone
	case collect.FieldProfGREngine:
		return in.SM
	case collect.FieldProfSMOccupancy:
		return in.Occupancy
	case collect.FieldProfTensor:
		return in.Tensor
	case collect.FieldProfDRAM:
		return in.DRAM
	}
	return attribution.Reading[attribution.Ratio]{}
}

// holder names an instance, and who has it where it is one grant's alone.
func (s *scrape) holder(g collect.GPU, in attribution.Instance) who {
	w, holders := who{profile: in.Ref.Profile, instance: strconv.Itoa(in.GI)}, 0
	for _, u := range g.Use.Grants {
		if u.Instance != in.Ref {
			continue
		}
		if holders++; holders > 1 {
			return who{profile: w.profile, instance: w.instance}
		}
		grant := s.snapshot.Grants[u.Grant]
		w.container, w.namespace, w.pod = grant.Container, grant.Namespace, grant.Pod
	}
	return w
}

// busID is a PCI address as DCGM writes it, with a domain of eight digits and capitals. What is no address stays as it
// is.
func busID(pci string) string {
	domain, rest, ok := strings.Cut(strings.ToUpper(pci), ":")
	if !ok || len(domain) > 8 {
		return pci
	}
	return strings.Repeat("0", 8-len(domain)) + domain + ":" + rest
}

// useOf tells how a field is read from a use, in the field's unit; nil for a field that has no owner.
func useOf(f collect.Field) func(attribution.Use) (v float64, known bool) {
	switch f { //nolint:exhaustive // the others have no owner
	case collect.FieldMemoryUsed:
		return func(u attribution.Use) (float64, bool) {
			return float64(u.Memory.Value) / float64(sharing.MiB), u.Memory.Known()
		}
	case collect.FieldBusy:
		return func(u attribution.Use) (float64, bool) { return 100 * float64(u.SM.Value), u.SM.Known() }
	case collect.FieldMemoryBusy:
		return func(u attribution.Use) (float64, bool) { return 100 * float64(u.DRAM.Value), u.DRAM.Known() }
	}
	return nil
}
