// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package stream is the telemetry API's server side: it sends the collector's snapshots to readers.
//
// It promises that a reader gets each sample once and in order, and the number of missed ones. A slow reader delays
// neither the collector nor another reader. A reader's filter applies before the send.
//
// It does not say who may read: that is the socket's mode.
package stream

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// filter is what a reader wants; an empty list wants all.
type filter struct{ gpus, namespaces, grants []string }

func newFilter(in *telemetryapi.WatchRequest) filter {
	return filter{in.GetGpus(), in.GetNamespaces(), in.GetGrants()}
}

// name is the same for readers that want the same, in whatever order they said it.
func (f filter) name() string {
	sorted := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	return fmt.Sprintf("%q %q %q", sorted(f.gpus), sorted(f.namespaces), sorted(f.grants))
}

func (f filter) everyone() bool { return len(f.namespaces) == 0 && len(f.grants) == 0 }

func (f filter) grant(g collect.Grant) bool {
	return (len(f.namespaces) == 0 || slices.Contains(f.namespaces, g.Namespace)) &&
		(len(f.grants) == 0 || slices.Contains(f.grants, g.Name) || slices.Contains(f.grants, g.ID))
}

// sampleOf is a snapshot in the words of the API.
func sampleOf(s *collect.Snapshot, keep filter) *telemetryapi.Sample {
	out := &telemetryapi.Sample{Sequence: s.Seq, AtUnixNanos: s.At.UnixNano(), Source: s.Source,
		DriverVersion: s.Driver, AgentUp: s.Agent}
	for _, g := range s.GPUs {
		if len(keep.gpus) > 0 && !slices.Contains(keep.gpus, string(g.Info.UUID)) {
			continue
		}
		out.Gpus = append(out.Gpus, gpuOf(s, g, keep))
	}
	return out
}

func gpuOf(s *collect.Snapshot, g collect.GPU, keep filter) *telemetryapi.GPU {
	out := &telemetryapi.GPU{Uuid: string(g.Info.UUID), Index: int32(g.Info.Index), Model: g.Info.Model} //nolint:gosec // an index
	if g.Err != nil {
		out.Error = g.Err.Error()
		return out
	}
	if v, ok := g.Fields[collect.FieldMemoryTotal]; ok {
		total := uint64(v * float64(sharing.MiB))
		allocatable := uint64(sharing.Bytes(total).SubFloor(
			sharing.Bytes(g.Fields[collect.FieldMemoryReserved] * float64(sharing.MiB))))
		out.MemoryTotalBytes, out.MemoryAllocatableBytes = &total, &allocatable
	}
	if m := g.Device.Memory; m.Known {
		used := uint64(m.Value)
		out.MemoryUsedBytes, out.ExcessBytes = &used, uint64(g.Use.Excess.Memory)
	}
	if sm := g.Device.SM; sm.Known {
		ratio := float64(sm.Value)
		out.SmRatio = &ratio
	}
	out.PowerWatts, out.TemperatureCelsius = field(g, collect.FieldPower), field(g, collect.FieldTemperature)
	for _, u := range g.Use.Grants {
		if grant := s.Grants[u.Grant]; keep.grant(grant) {
			out.Usages = append(out.Usages, grantUsage(g, grant, u))
		}
	}
	if keep.everyone() {
		unmanaged := usageOf("unmanaged", g.Use.Unmanaged,
			g.Totals[attribution.Place{GPU: sharing.GPURef{UUID: g.Info.UUID}, Unmanaged: true}])
		for _, pid := range g.Use.UnmanagedPIDs {
			unmanaged.Pids = append(unmanaged.Pids, int32(pid)) //nolint:gosec // a pid
		}
		out.Usages = append(out.Usages, unmanaged, usageOf(attribution.Unattributed.String(), g.Use.Rest,
			g.Totals[attribution.Place{GPU: sharing.GPURef{UUID: g.Info.UUID}}]))
	}
	return out
}

func field(g collect.GPU, f collect.Field) *float64 {
	v, ok := g.Fields[f]
	if !ok {
		return nil
	}
	return &v
}

func grantUsage(g collect.GPU, grant collect.Grant, u attribution.GrantUse) *telemetryapi.Usage {
	gpu := sharing.GPURef{UUID: g.Info.UUID, Instance: u.Instance}
	total := g.Totals[attribution.Place{Grant: u.Grant, GPU: gpu}]
	out := usageOf("grant", u.Use, total)
	out.Grant, out.GrantId, out.Namespace, out.Pod, out.Container, out.Level = grant.Name, grant.ID, grant.Namespace,
		grant.Pod, grant.Container, grant.Level
	out.Claims = grant.Claims
	out.InstanceProfile, out.InstanceStart = u.Instance.Profile, int32(u.Instance.Start) //nolint:gosec // a place on a GPU
	if limit, ok := grant.CapOn(gpu); ok {
		out.MemoryGuaranteedBytes, out.MemoryBurstBytes = uint64(limit.Memory), uint64(limit.Burst)
		out.ComputeGrantedRatio = float64(limit.Percent) / float64(sharing.FullGPU)
		atCap(out, limit)
	}
	if total.Watched > 0 {
		idle := total.Idle.Seconds()
		out.IdleSeconds = &idle
	}
	return out
}

// atCap adds what happened at a grant's cap.
func atCap(out *telemetryapi.Usage, c collect.Cap) {
	counted := func(v float64) *telemetryapi.Amount {
		return &telemetryapi.Amount{Value: v, Attribution: attribution.ByProcess.String()}
	}
	if c.Timed {
		out.ThrottledSeconds = counted(c.Throttled.Seconds())
	}
	if c.Events.Counted {
		out.OomRefusals = counted(float64(c.Events.Refused))
	}
	if c.Events.Watched {
		out.CapViolations = counted(float64(c.Events.Violations))
	}
	if c.Events.Violations > 0 {
		out.DetectionSeconds = counted(c.Events.Delay.Seconds())
	}
}

func usageOf(owner string, u attribution.Use, t attribution.Total) *telemetryapi.Usage {
	return &telemetryapi.Usage{
		Owner: owner, Processes: int32(u.Processes), //nolint:gosec // a number of processes
		MemoryBytes: amount(u.Memory), SmRatio: amount(u.SM), MemoryActiveRatio: amount(u.DRAM),
		EnergyJoules:    amount(u.Energy),
		MemoryPeakBytes: amount(t.Peak), EncoderRatio: amount(u.Engines.Encoder),
		DecoderRatio:      amount(u.Engines.Decoder),
		TensorActiveRatio: amount(u.Engines.Tensor), OccupancyRatio: amount(u.Engines.Occupancy),
	}
}

func amount[T attribution.Quantity](a attribution.Amount[T]) *telemetryapi.Amount {
	if !a.Known() {
		return nil
	}
	return &telemetryapi.Amount{Value: float64(a.Value), Attribution: a.How.String()}
}

// Own answers one caller with its numbers. GET / is the newest sample as JSON of the telemetry API, with the usage and
// caps of the caller's pod alone. The caller's cgroup, as the kernel reports it, is dir. Nothing that the caller sends
// changes whose numbers it gets.
func Own(hub *collect.Broadcaster, dir string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		snapshot := hub.Latest()
		if snapshot == nil {
			http.Error(w, "no sample yet", http.StatusServiceUnavailable)
			return
		}
		ids := ownIDs(snapshot, dir)
		if len(ids) == 0 {
			http.Error(w, "you have no grant here", http.StatusForbidden)
			return
		}
		text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(ownSample(snapshot,
			ids))
		if err != nil {
			http.Error(w, "the sample cannot be written", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(text, '\n')) // who does not read it, goes without
	})
	return mux
}

// Tenant names the pod, or the grant of no pod, of a process in that cgroup. It is the same for all callers that get
// the same answer from Own, and empty without a grant in the newest sample.
func Tenant(hub *collect.Broadcaster, dir string) string {
	s := hub.Latest()
	if s == nil {
		return ""
	}
	mine := grantAt(s, dir)
	if mine.PodUID != "" {
		return "pod " + mine.PodUID
	}
	return mine.ID
}

// grantAt is the grant whose attachment has that cgroup; without an ID there is none.
func grantAt(s *collect.Snapshot, dir string) (mine collect.Grant) {
	for _, g := range s.Grants {
		attachment := g.Attachment.Cgroup
		rest, below := strings.CutPrefix(dir, attachment)
		// The deepest decides, should one ever be below another.
		if attachment != "" && below && (rest == "" || rest[0] == '/') &&
			len(attachment) > len(mine.Attachment.Cgroup) {
			mine = g
		}
	}
	return mine
}

// ownIDs are the grants of the pod, or the process, that is in that cgroup.
func ownIDs(s *collect.Snapshot, dir string) []string {
	mine := grantAt(s, dir)
	if mine.ID == "" {
		return nil
	}
	ids := []string{mine.ID}
	for id, g := range s.Grants {
		if id != mine.ID && g.PodUID != "" && g.PodUID == mine.PodUID {
			ids = append(ids, id)
		}
	}
	return ids
}

func ownSample(s *collect.Snapshot, ids []string) *telemetryapi.Sample {
	out := &telemetryapi.Sample{Sequence: s.Seq, AtUnixNanos: s.At.UnixNano(), Source: s.Source,
		DriverVersion: s.Driver, AgentUp: s.Agent}
	for _, g := range s.GPUs {
		all := gpuOf(s, g, filter{grants: ids})
		if len(all.GetUsages()) > 0 {
			out.Gpus = append(out.Gpus, &telemetryapi.GPU{
				Uuid: all.GetUuid(), Index: all.GetIndex(), Model: all.GetModel(), Error: all.GetError(),
				Usages:           all.GetUsages(),
				MemoryTotalBytes: all.MemoryTotalBytes, MemoryAllocatableBytes: all.MemoryAllocatableBytes,
			})
		}
	}
	return out
}
