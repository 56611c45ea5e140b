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
func asKept(t testing.TB, told map[string]any) *gpuNode {
	t.Helper()
	raw, err := json.Marshal(told)
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

// What an informer keeps is what its key is made of, and all that the books read.
func TestKeptGPUNode(t *testing.T) {
	numa := 1
	status := gpunode.Status{
		Pool: "a", Ready: true, NotReady: []string{"x"},
		GPUs: []gpunode.GPU{
			{UUID: "GPU-0", Index: 0, Model: "H100", MemoryBytes: 80 * gib, UsableBytes: 79 * gib, FreeBytes: 7 * gib, NUMANode: &numa, Levels: []string{"driver"}},
			{UUID: "GPU-1", Index: 1},
		},
		Claims:   []gpunode.Claim{{ID: "c", PodUID: "u", Fragments: []gpunode.Fragment{{GPU: "GPU-0", MemoryBytes: 72 * gib}}}},
		Unplaced: []gpunode.Unplaced{{PodUID: "w", Reason: "full"}},
		Ending:   []gpunode.Ending{{PodUID: "e"}},
	}
	n := asKept(t, map[string]any{
		"metadata": map[string]any{"name": "n0", "uid": "u0", "resourceVersion": "7", "labels": map[string]string{"a": "b"}},
		"status":   status, "spec": gpunode.Spec{Cordoned: map[string]gpunode.Cordon{"GPU-1": {Reason: "fan"}}},
	})
	status.Cordon(gpunode.Spec{Cordoned: map[string]gpunode.Cordon{"GPU-1": {Reason: "fan"}}})
	if d := cmp.Diff(status, n.status); d != "" || n.unread != nil || n.specUnread != nil || n.status.GPUs[1].Cordoned == "" {
		t.Errorf("%v, %v, cordoned %q, -told +kept:\n%s", n.unread, n.specUnread, n.status.GPUs[1].Cordoned, d)
	}
	if key, err := cache.MetaNamespaceKeyFunc(n); err != nil || key != "n0" || n.UID != "u0" || n.ResourceVersion != "7" {
		t.Errorf("key %q, %v, UID %q, version %q", key, err, n.UID, n.ResourceVersion)
	}
	if again, err := readGPUNode(n); err != nil || again != any(n) {
		t.Errorf("a second time: %v, %v", again, err)
	}
}

func TestGPUNodeThatCannotBeRead(t *testing.T) {
	for _, status := range []any{"text", map[string]any{"gpus": "none"}} {
		n := asKept(t, map[string]any{"metadata": map[string]any{"name": "n0"}, "status": status})
		if n.unread == nil || !strings.Contains(n.unread.Error(), "status") {
			t.Errorf("%v: %v", status, n.unread)
		}
	}
	n := asKept(t, map[string]any{"metadata": map[string]any{"name": "n0"}, "status": gpunode.Status{Pool: "a"}, "spec": map[string]any{"cordoned": 1}})
	if n.unread != nil || n.status.Pool != "a" || n.specUnread == nil || !strings.Contains(n.specUnread.Error(), "spec") {
		t.Errorf("%v, %v, %+v", n.unread, n.specUnread, n.status)
	}
}
