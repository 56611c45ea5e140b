// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kerf-gpu/kerf/api/gpunode"
	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// mostExposed bounds what is read of one monitor's exposition, in bytes.
const mostExposed = 16 << 20

// useKey is one owner on one GPU. Pod and container are empty for programs outside pods.
type useKey struct{ gpu, owner, namespace, pod, container, grant string }

// measured are the amounts that monitors report: of owners, and of whole GPUs by metric and UUID.
type measured struct {
	memory, sm map[useKey]float64
	gpus       map[string]map[string]float64
}

// The metrics of whole GPUs that are read.
const (
	gpuMemory      = "kerf_gpu_memory_used_bytes"
	gpuSM          = "kerf_gpu_sm_ratio"
	gpuPower       = "kerf_gpu_power_watts"
	gpuTemperature = "kerf_gpu_temperature_celsius"
)

// measure reads every monitor once. The texts in left name what is not known, and the reason.
func measure(ctx context.Context, api *access.Client) (m measured, left []string) {
	m = measured{map[useKey]float64{}, map[useKey]float64{}, map[string]map[string]float64{gpuMemory: {}, gpuSM: {},
		gpuPower: {}, gpuTemperature: {}}}
	pods, err := command.OwnPods(ctx, api, "kerf-monitor")
	if err != nil {
		return m, []string{err.Error()}
	}
	if len(pods) == 0 {
		return m,
			[]string{"usage is unknown: no kerf-monitor runs (deploy/variants/monitor.yaml)"}
	}
	for _, p := range pods {
		text, err := command.CallPod(ctx, api, p, command.MonitorPort, "metrics", nil, mostExposed)
		if err == nil {
			err = m.read(text)
		}
		if err != nil {
			left = append(left, err.Error())
		}
	}
	return m, left
}

// read takes in one monitor's exposition.
func (m measured) read(text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read the monitor's metrics: %w (%w)", err, sharing.ErrInvalid)
	}
	for name, into := range map[string]map[useKey]float64{"kerf_usage_memory_bytes": m.memory,
		"kerf_usage_sm_ratio": m.sm} {
		for _, row := range families[name].GetMetric() {
			into[keyOf(row)] += row.GetGauge().GetValue()
		}
	}
	for name, into := range m.gpus {
		for _, row := range families[name].GetMetric() {
			into[keyOf(row).gpu] = row.GetGauge().GetValue()
		}
	}
	return nil
}

func keyOf(row *dto.Metric) useKey {
	var k useKey
	for _, l := range row.GetLabel() {
		switch l.GetName() {
		case "gpu_uuid":
			k.gpu = l.GetValue()
		case "owner":
			k.owner = l.GetValue()
		case "namespace":
			k.namespace = l.GetValue()
		case "pod":
			k.pod = l.GetValue()
		case "container":
			k.container = l.GetValue()
		case "grant":
			k.grant = l.GetValue()
		}
	}
	if k.pod != "" || k.owner != "grant" {
		k.grant = ""
	}
	return k
}

// usesOf joins reserved and measured amounts. Usage without a grant has a separate line.
func usesOf(p present.Cluster, m measured) []present.ClusterUsage {
	var out []present.ClusterUsage
	amount := func(of map[useKey]float64, k useKey) *float64 {
		if v, ok := of[k]; ok {
			return &v
		}
		return nil
	}
	for _, n := range p.Nodes {
		index := map[string]int{}
		for _, g := range n.GPUs {
			index[g.UUID] = g.Index
		}
		for _, c := range n.Grants {
			for _, f := range c.Shares {
				k := useKey{gpu: f.GPU, owner: "grant", namespace: c.Namespace, pod: c.Pod, container: c.Container}
				if c.Pod == "" {
					k.grant = c.ID
				}
				out = append(out, present.ClusterUsage{
					Node: n.Name, GPU: f.GPU, Index: index[f.GPU], Grant: c.ID, Namespace: c.Namespace, Pod: c.Pod,
					Container: c.Container,
					Level:     c.Level, MemoryBytes: uint64(max(0, f.MemoryBytes)), UsedBytes: amount(m.memory, k),
					SM: amount(m.sm, k), Claims: n.Claims[c.ID],
				})
			}
		}
		for _, g := range n.GPUs {
			k := useKey{gpu: g.UUID, owner: "unmanaged"}
			if used := amount(m.memory, k); used != nil && *used > 0 {
				out = append(out, present.ClusterUsage{Node: n.Name, GPU: g.UUID, Index: g.Index, UsedBytes: used,
					SM: amount(m.sm, k)})
			}
		}
	}
	return out
}

// samplesOf puts the reports of a cluster's agents and monitors into the form of one machine's samples.
func samplesOf(p present.Cluster, uses []present.ClusterUsage, m measured) []present.TopNode {
	type onGPU struct{ node, gpu string }
	owners := map[onGPU][]*telemetryapi.Usage{}
	shares := sharesOf(p)
	for _, u := range uses {
		of := onGPU{u.Node, u.GPU}
		owners[of] = append(owners[of], usageOf(u, shares[shareKey{u.Node, u.Grant, u.GPU}]))
	}
	out := make([]present.TopNode, 0, len(p.Nodes))
	for _, n := range p.Nodes {
		s := &telemetryapi.Sample{DriverVersion: n.DriverVersion, AgentUp: !n.Stale}
		for _, g := range n.GPUs {
			allocatable := uint64(max(0, g.AllocatableBytes))
			shown := &telemetryapi.GPU{Uuid: g.UUID, Index: int32(g.Index), Model: g.Model, //nolint:gosec // a few GPUs
				MemoryAllocatableBytes: &allocatable, SmRatio: m.ofGPU(gpuSM, g.UUID),
				PowerWatts: m.ofGPU(gpuPower, g.UUID), TemperatureCelsius: m.ofGPU(gpuTemperature, g.UUID),
				Usages: owners[onGPU{n.Name, g.UUID}]}
			if used := m.ofGPU(gpuMemory, g.UUID); used != nil {
				whole := uint64(max(0, *used))
				shown.MemoryUsedBytes = &whole
			}
			s.Gpus = append(s.Gpus, shown)
		}
		out = append(out, present.TopNode{Name: n.Name, Sample: s})
	}
	return out
}

// ofGPU is one amount of a GPU; nil if unknown.
func (m measured) ofGPU(metric, uuid string) *float64 {
	if v, ok := m.gpus[metric][uuid]; ok {
		return &v
	}
	return nil
}

// shareKey is one GPU of a grant.
type shareKey struct{ node, grant, gpu string }

func sharesOf(p present.Cluster) map[shareKey]gpunode.Share {
	out := map[shareKey]gpunode.Share{}
	for _, n := range p.Nodes {
		for _, g := range n.Grants {
			for _, s := range g.Shares {
				out[shareKey{n.Name, g.ID, s.GPU}] = s
			}
		}
	}
	return out
}

// usageOf is an owner's usage in the form of a sample. A report has no processes.
func usageOf(u present.ClusterUsage, s gpunode.Share) *telemetryapi.Usage {
	amount := func(v *float64) *telemetryapi.Amount {
		if v == nil {
			return nil
		}
		return &telemetryapi.Amount{Value: *v}
	}
	out := &telemetryapi.Usage{Owner: "unmanaged", Processes: present.UnknownProcesses,
		MemoryBytes: amount(u.UsedBytes), SmRatio: amount(u.SM)}
	if u.Grant == "" {
		return out
	}
	out.Owner, out.Grant, out.GrantId, out.Level = "grant", u.Grant, u.Grant, u.Level
	if u.Pod != "" {
		out.Grant = u.Namespace + "/" + u.Pod + "/" + u.Container
	}
	out.Namespace, out.Pod, out.Container = u.Namespace, u.Pod, u.Container
	out.MemoryGuaranteedBytes, out.ComputeGrantedRatio = u.MemoryBytes, float64(s.Percent)/100
	if s.Whole {
		out.ComputeGrantedRatio = 1
	}
	out.InstanceProfile, out.InstanceStart = s.MIGProfile, int32(s.MIGStart) //nolint:gosec // at most 8
	return out
}
