// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// asKept is a GPUNode that the API server tells, as an informer keeps it.
func asKept(t testing.TB, reported map[string]any) *gpuNode {
	t.Helper()
	raw, err := json.Marshal(reported)
	if err != nil {
		t.Fatal(err)
	}
	var o unstructured.Unstructured
	if err := json.Unmarshal(raw, &o.Object); err != nil {
		t.Fatal(err)
	}
	kept, err := readGPUNode(&o)
	n, ok := kept.(*gpuNode)
	if err != nil || !ok {
		t.Fatalf("%T, %v", kept, err)
	}
	return n
}

// What an informer keeps is what its key is made of, and all that the cluster state reads.
func TestKeptGPUNode(t *testing.T) {
	numa := 1
	status := gpunode.Status{
		Pool: "a", Conditions: isReady(),
		GPUs: []gpunode.GPU{
			{UUID: "GPU-0", Index: 0, Model: "H100", CapacityBytes: 80 * gib, AllocatableBytes: 79 * gib,
				FreeBytes: 7 * gib,
				NUMANode:  &numa, Levels: []string{"driver"}},
			{UUID: "GPU-1", Index: 1},
		},
		Grants: []gpunode.Grant{{ID: "c", PodUID: "u",
			Shares: []gpunode.Share{{GPU: "GPU-0", MemoryBytes: 72 * gib}}}},
		PendingPods:     []gpunode.PendingPod{{PodUID: "w", Reason: "full"}},
		TerminatingPods: []gpunode.TerminatingPod{{PodUID: "e"}},
	}
	n := asKept(t, map[string]any{
		"metadata": map[string]any{"name": "n0", "uid": "u0", "resourceVersion": "7",
			"labels": map[string]string{"a": "b"}},
		"status": status, "spec": gpunode.Spec{CordonedGPUs: []gpunode.Cordon{{UUID: "GPU-1", Reason: "fan"}}},
	})
	status.Cordon(gpunode.Spec{CordonedGPUs: []gpunode.Cordon{{UUID: "GPU-1", Reason: "fan"}}})
	if d := cmp.Diff(status, n.status); d != "" || n.unread != nil || n.specUnread != nil ||
		n.status.GPUs[1].Cordoned == "" {
		t.Errorf("%v, %v, cordoned %q, -read +kept:\n%s", n.unread, n.specUnread, n.status.GPUs[1].Cordoned, d)
	}
	if key, err := cache.MetaNamespaceKeyFunc(n); err != nil || key != "n0" || n.UID != "u0" ||
		n.ResourceVersion != "7" {
		t.Errorf("key %q, %v, UID %q, version %q", key, err, n.UID, n.ResourceVersion)
	}
	if again, err := readGPUNode(n); err != nil || again != any(n) {
		t.Errorf("a second time: %v, %v", again, err)
	}
}

// TestEarlierGPUNode: an agent of the earlier release is not replaced yet.
func TestEarlierGPUNode(t *testing.T) {
	n := asKept(t, map[string]any{"metadata": map[string]any{"name": "n0"},
		"spec": map[string]any{"cordoned": map[string]any{"GPU-1": map[string]any{"reason": "fan"}}},
		"status": map[string]any{"ready": true, "pool": "a", "fingerprint": "f",
			"gpus": []any{map[string]any{"uuid": "GPU-1", "memoryBytes": 80 * gib, "usableBytes": 79 * gib}},
			"claims": []any{map[string]any{"id": "c", "podUID": "u", "inUse": true, "level": "driver",
				"fragments": []any{map[string]any{"gpu": "GPU-1", "memoryBytes": gib, "percent": 5}}}}}})
	want := gpunode.Status{Pool: "a", Fingerprint: "f", Conditions: n.status.Conditions,
		GPUs: []gpunode.GPU{{UUID: "GPU-1", CapacityBytes: 80 * gib, AllocatableBytes: 79 * gib, Cordoned: "fan"}},
		Grants: []gpunode.Grant{{ID: "c", PodUID: "u", State: gpunode.StateActive, Level: "driver",
			Shares: []gpunode.Share{{GPU: "GPU-1", MemoryBytes: gib, Percent: 5}}}}}
	if d := cmp.Diff(want, n.status); d != "" || !n.status.Ready() || n.unread != nil || n.specUnread != nil {
		t.Errorf("ready %t, %v, %v, -want +read:\n%s", n.status.Ready(), n.unread, n.specUnread, d)
	}
}

func TestGPUNodeThatCannotBeRead(t *testing.T) {
	for _, status := range []any{"text", map[string]any{"gpus": "none"}} {
		n := asKept(t, map[string]any{"metadata": map[string]any{"name": "n0"}, "status": status})
		if n.unread == nil || !strings.Contains(n.unread.Error(), "status") {
			t.Errorf("%v: %v", status, n.unread)
		}
	}
	n := asKept(t, map[string]any{"metadata": map[string]any{"name": "n0"}, "status": gpunode.Status{Pool: "a"},
		"spec": map[string]any{"cordoned": 1}})
	if n.unread != nil || n.status.Pool != "a" || n.specUnread == nil ||
		!strings.Contains(n.specUnread.Error(), "spec") {
		t.Errorf("%v, %v, %+v", n.unread, n.specUnread, n.status)
	}
}
