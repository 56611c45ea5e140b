// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/api/gpunode"
	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// mostExposed bounds what is read of one monitor's exposition, in bytes.
	mostExposed = 16 << 20
	// monitorsAtOnce is how many monitors are read at the same time, and monitorDeadline bounds the answer of each.
	monitorsAtOnce  = 16
	monitorDeadline = 5 * time.Second
)

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
	var mu sync.Mutex
	for _, err := range eachOf(ctx, len(pods), func(ctx context.Context, i int) error {
		text, err := command.CallPod(ctx, api, pods[i], command.MonitorPort, "metrics", nil, mostExposed)
		if err != nil {
			return err //nolint:wrapcheck // it names the pod
		}
		families, err := parse(text)
		if err != nil {
			return fmt.Errorf("ask pod of node %s: %w", pods[i].Node, err)
		}
		mu.Lock()
		defer mu.Unlock()
		m.add(families)
		return nil
	}) {
		if err != nil {
			left = append(left, err.Error())
		}
	}
	return m, left
}

// eachOf calls ask for each number below n, and returns the error of each. Some calls run at the same time, and each
// has a deadline, so that a monitor that does not answer delays no other.
func eachOf(ctx context.Context, n int, ask func(ctx context.Context, i int) error) []error {
	errs := make([]error, n)
	var all errgroup.Group
	all.SetLimit(monitorsAtOnce)
	for i := range n {
		all.Go(func() error {
			one, cancel := context.WithTimeout(ctx, monitorDeadline)
			defer cancel()
			errs[i] = ask(one, i)
			return nil
		})
	}
	_ = all.Wait() // the errors are in errs
	return errs
}

// parse reads one monitor's exposition.
func parse(text []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the monitor's metrics: %w (%w)", err, sharing.ErrInvalid)
	}
	return families, nil
}

// add takes in what one monitor exposes.
func (m measured) add(families map[string]*dto.MetricFamily) {
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
				SmRatio:    m.ofGPU(gpuSM, g.UUID),
				PowerWatts: m.ofGPU(gpuPower, g.UUID), TemperatureCelsius: m.ofGPU(gpuTemperature, g.UUID),
				Usages: owners[onGPU{n.Name, g.UUID}]}
			if !g.SystemMemory {
				shown.MemoryAllocatableBytes = &allocatable
			}
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
