// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const gib = int64(sharing.GiB)

// noon is when the tests begin.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// uuid is the UUID of GPU g of a node, of which only the last digits differ.
func uuid(node, g int) string { return fmt.Sprintf("GPU-00000000-0000-0000-%04d-%012d", node, g) }

// hold is one claim of a report.
type hold struct {
	uid    string
	gpu    int
	memory int64 // GiB; 0 is the whole GPU
	per    int
	// bytes is the memory where it is no whole number of GiB.
	bytes int64
}

// gpu is one of a report.
type gpu = gpunode.GPU

// statusOf is the report of a node of so many GPUs of 80 GiB of which 79 can be granted, with these claims.
func statusOf(node, gpus int, holds ...hold) gpunode.Status {
	s := gpunode.Status{Pool: "default", Conditions: isReady()}
	for g := range gpus {
		s.GPUs = append(s.GPUs, gpunode.GPU{
			UUID: uuid(node, g), Index: g, Model: "H100", CapacityBytes: 80 * gib, AllocatableBytes: 79 * gib,
			FreeBytes: 79 * gib, FreePercent: 100,
			Health: "healthy", Levels: []string{"driver", "userspace"},
		})
	}
	for i, h := range holds {
		f := gpunode.Share{GPU: uuid(node, h.gpu), MemoryBytes: h.memory*gib + h.bytes, Percent: h.per}
		if f.MemoryBytes == 0 {
			f.MemoryBytes, f.Percent, f.Whole = 79*gib, 100, true
			s.GPUs[h.gpu].Whole = true
		}
		g := &s.GPUs[h.gpu]
		g.FreeBytes -= f.MemoryBytes
		g.FreePercent -= f.Percent
		g.GrantedBytes += f.MemoryBytes
		s.Grants = append(s.Grants, gpunode.Grant{ID: strconv.Itoa(i), PodUID: h.uid, Container: "main",
			Shares: []gpunode.Share{f}})
	}
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	return s
}

// podOf is a pod of one container with these limits and annotations, in pairs.
func podOf(uid string, limits map[string]string, annotations ...string) sharing.Pod {
	p := sharing.Pod{UID: uid, Namespace: "ns", Name: uid, Annotations: map[string]string{},
		Containers: []sharing.PodContainer{{Name: "main", Limits: limits}}}
	for i := 0; i+1 < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

func memory(n int) map[string]string {
	return map[string]string{sharing.ResourceMemory: strconv.Itoa(n)}
}
func whole(n int) map[string]string { return map[string]string{sharing.ResourceGPU: strconv.Itoa(n)} }

func want(t testing.TB, p sharing.Pod) scheduler.PodRequest {
	t.Helper()
	w, ok, err := scheduler.PodRequestOf(p)
	if err != nil || !ok {
		t.Fatalf("want of %s: %t, %v", p.Name, ok, err)
	}
	return w
}

// machine offers everything.
func machine() scheduler.Machine {
	return scheduler.Machine{CPU: 64000, Memory: 512 * sharing.GiB, Allocatable: map[string]int64{
		sharing.ResourceMemory: 1000, sharing.ResourcePercent: 1000, sharing.ResourceGPU: 8,
		"kerf.dev/mig-1g.10gb": 14, "kerf.dev/mig-1g.20gb": 8, "kerf.dev/mig-2g.20gb": 6, "kerf.dev/mig-3g.40gb": 4,
		"kerf.dev/mig-7g.80gb": 2,
	}}
}

// clusterStateOf is the state of a cluster with nodes of so many GPUs each, all with a heartbeat at noon.
func clusterStateOf(nodes, gpus int) *scheduler.ClusterState {
	b := scheduler.New()
	for i := range nodes {
		name := nodeName(i)
		b.Machine(name, machine())
		b.Report(name, statusOf(i, gpus))
		b.Heartbeat(name, noon(), 40*time.Second, noon())
	}
	return b
}

func nodeName(i int) string { return fmt.Sprintf("n%02d", i) }

// isReady are the conditions of a node whose containers can start.
func isReady() []gpunode.Condition {
	return []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}
}
