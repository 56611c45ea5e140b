// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package consoletest makes nodes and pods for tests of the console. It has no product code.
package consoletest

import (
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
)

const gib = int64(sharing.GiB)

// Noon is the time of the tests.
func Noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// Grant is a grant of a pod on a GPU. Without GiB, it is the whole GPU.
type Grant struct {
	Pod      model.SeenPod
	GPU, GiB int
}

// Model is the model of the GPUs.
const Model = "NVIDIA H100 80GB HBM3"

// UUID is that of a node's GPU.
func UUID(node string, gpu int) string {
	sum := 0
	for _, c := range node {
		sum = sum*31 + int(c)
	}
	return fmt.Sprintf("GPU-00000000-0000-0000-0000-%08x%04d", uint32(sum), gpu)
}

// Node is the report of a ready node of so many GPUs of 80 GiB, of which 79 can be granted.
func Node(name string, gpus int, holds ...Grant) gpunode.Status {
	s := gpunode.Status{Pool: "default", DriverVersion: "615.10", AgentVersion: "v1.0.0",
		Conditions: []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}}
	for i := range gpus {
		s.GPUs = append(s.GPUs, gpunode.GPU{UUID: UUID(name, i), Index: i, Model: Model, CapacityBytes: 80 * gib,
			AllocatableBytes: 79 * gib, FreeBytes: 79 * gib, FreePercent: 100, Health: sharing.HealthOK.String(),
			Levels: []string{"driver", "userspace"}})
	}
	for i, h := range holds {
		g := &s.GPUs[h.GPU]
		f := gpunode.Share{GPU: g.UUID, MemoryBytes: int64(h.GiB) * gib}
		if h.GiB == 0 {
			f.MemoryBytes, f.Percent, f.Whole, g.Whole = 79*gib, 100, true, true
		}
		g.FreeBytes -= f.MemoryBytes
		g.FreePercent -= f.Percent
		g.GrantedBytes += f.MemoryBytes
		g.GrantedPercent += f.Percent
		s.Grants = append(s.Grants, gpunode.Grant{ID: fmt.Sprintf("%s-%d", name, i), PodUID: h.Pod.UID,
			Namespace: h.Pod.Namespace, Pod: h.Pod.Name, Container: "main", State: gpunode.StateActive, Level: "driver",
			Backend: "driver", Shares: []gpunode.Share{f}})
	}
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	return s
}

// Pod is a pod of one container with these limits; it is pending without a node.
func Pod(namespace, name, node string, limits map[string]string) model.SeenPod {
	return model.SeenPod{Since: Noon(), Pod: sharing.Pod{UID: namespace + "-" + name, Namespace: namespace, Name: name,
		Node: node, Containers: []sharing.PodContainer{{Name: "main", Limits: limits}}}}
}

// Geometry is the MIG state of a GPU with profile 1g.10gb.
func Geometry() *gpunode.MIGState {
	return &gpunode.MIGState{MemorySlices: 8, Profiles: []string{"1g.10gb"}, Geometry: []gpunode.MIGProfile{{
		Name: "1g.10gb", ID: 19, Compute: 1, MemoryBytes: 10 * gib, MaxInstances: 7, MemorySlices: 1,
		PlacementStarts: []int{0, 1, 2, 3, 4, 5, 6}}}}
}
