// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
	"github.com/kerf-gpu/kerf/monitor/collect"
)

// Own answers one caller with its own numbers: GET / is the newest sample, in the telemetry API's words as JSON, with
// what the caller's pod uses and may use, and nothing of its neighbours or of the GPUs' totals. dir is the cgroup that
// the caller is in, as the kernel told it. Nothing that the caller sends decides whose numbers it gets.
func Own(hub *collect.Hub, dir string) http.Handler {
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
		text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(ownSample(snapshot, ids))
		if err != nil {
			http.Error(w, "the sample cannot be written", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(text, '\n')) // who does not read it, goes without
	})
	return mux
}

// Tenant names the pod, or the grant of no pod, that a process in that cgroup belongs to: the same for all that Own
// answers alike, and empty for who has no grant in the newest sample.
func Tenant(hub *collect.Hub, dir string) string {
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

// grantAt is the grant whose lease has that cgroup; without an ID there is none.
func grantAt(s *collect.Snapshot, dir string) (mine collect.Grant) {
	for _, g := range s.Grants {
		lease := g.Lease.Cgroup
		rest, below := strings.CutPrefix(dir, lease)
		// The deepest decides, should one ever be below another.
		if lease != "" && below && (rest == "" || rest[0] == '/') && len(lease) > len(mine.Lease.Cgroup) {
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

func ownSample(s *collect.Snapshot, ids []string) *telemetryv1.Sample {
	out := &telemetryv1.Sample{Sequence: s.Seq, AtUnixNanos: s.At.UnixNano(), Source: s.Source, DriverVersion: s.Driver, AgentUp: s.Agent}
	for _, g := range s.GPUs {
		all := gpuOf(s, g, filter{grants: ids})
		if len(all.GetUses()) > 0 {
			out.Gpus = append(out.Gpus, &telemetryv1.GPU{
				Uuid: all.GetUuid(), Index: all.GetIndex(), Model: all.GetModel(), Error: all.GetError(), MemoryTotalBytes: all.MemoryTotalBytes, Uses: all.GetUses(),
			})
		}
	}
	return out
}
