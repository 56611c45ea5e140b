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

// dcgm exposes fields as dcgm-exporter does. Three of them are use, which has an owner: memory used, and activity of the
// GPU and of its memory. They have one row per grant and one, without a pod, for what no grant accounts for. All other
// fields are the device's: one row, with the pod where one pod has the whole GPU.
type dcgm struct {
	fields   []collect.FieldInfo
	descs    []*prometheus.Desc
	hostname string
}

func newDCGM(fields []collect.FieldInfo, hostname string) dcgm {
	if fields == nil {
		fields = collect.Fields()
	}
	d := dcgm{fields: fields, hostname: hostname}
	labels := []string{
		"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "hostname", "DCGM_FI_DRIVER_VERSION",
		"container", "namespace", "pod",
	}
	for _, f := range fields {
		d.descs = append(d.descs, prometheus.NewDesc(f.Name, f.Help, labels, nil))
	}
	return d
}

// row is whose a value is.
type row struct {
	profile, instance         string
	container, namespace, pod string
}

func (d dcgm) gpu(gauge, counter emit, s *collect.Snapshot, g collect.GPU) {
	send := func(i int, v float64, r row) {
		out := gauge
		if d.fields[i].Kind == collect.Counter {
			out = counter
		}
		out(d.descs[i], v, strconv.Itoa(g.Info.Index), string(g.Info.UUID), g.Info.PCI, "nvidia"+strconv.Itoa(g.Info.Minor), g.Info.Model,
			r.profile, r.instance, d.hostname, s.Driver, r.container, r.namespace, r.pod)
	}
	device := row{}
	if whole, ok := s.Whole(g.Info.UUID); ok {
		device = row{container: whole.Container, namespace: whole.Namespace, pod: whole.Pod}
	}
	for i, f := range d.fields {
		value, ok := g.Fields[f.Field]
		if !ok {
			continue
		}
		of := useOf(f.Field)
		if of == nil || len(g.Use.Grants) == 0 {
			send(i, value, device)
			continue
		}
		// What has the same labels is one row: grants that are no pod's are with what nobody accounts for.
		rows := map[row]float64{}
		add := func(u attribution.Use, r row) {
			if v, known := of(u); known {
				rows[r] += v
			}
		}
		if _, whole := of(g.Use.Rest); whole {
			add(g.Use.Rest, row{})
			add(g.Use.Strangers, row{})
		}
		for _, u := range g.Use.Grants {
			add(u.Use, rowOf(s.Grants[u.Grant], g, u.Slot))
		}
		for r, v := range rows {
			send(i, v, r)
		}
	}
}

// rowOf has a grant's pod and MIG instance as labels.
func rowOf(grant collect.Grant, g collect.GPU, slot attribution.Slot) row {
	r := row{profile: slot.Profile, container: grant.Container, namespace: grant.Namespace, pod: grant.Pod}
	for _, in := range g.Device.Instances {
		if in.Slot == slot {
			r.instance = strconv.Itoa(in.GI)
		}
	}
	return r
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
