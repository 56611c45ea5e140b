// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// migNode has a node with one GPU in MIG mode, which gives 1g.10gb and 7g.80gb.
func (w *world) migNode(name string) {
	w.core.nodes().OnAdd(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
			"kerf.dev/mig-1g.10gb": resource.MustParse("7"), "kerf.dev/mig-7g.80gb": resource.MustParse("1"),
		}}}, true)
	s := gpunode.Status{Conditions: isReady(), Pool: "default", GPUs: []gpunode.GPU{{
		UUID: uuid(7, 0), Model: "H100", CapacityBytes: 80 * gib, AllocatableBytes: 79 * gib, Health: "healthy",
		MIG: true,
		MIGState: &gpunode.MIGState{MemorySlices: 8, Geometry: []gpunode.MIGProfile{
			{Name: "1g.10gb", ID: 19, Compute: 1, MemoryBytes: 10 * gib, MaxInstances: 7, MemorySlices: 1,
				PlacementStarts: []int{0, 1, 2, 3, 4, 5, 6}},
			{Name: "7g.80gb", Compute: 7, MemoryBytes: 80 * gib, MaxInstances: 1, MemorySlices: 8,
				PlacementStarts: []int{0}},
		}},
	}}, Fingerprint: gpunode.Fingerprint(nil)}
	w.core.change(name, func() {
		w.core.state.Report(name, s)
		w.core.state.Heartbeat(name, w.clock, 40*time.Second, w.clock)
	})
}

func migPod(name, profile string) *corev1.Pod {
	p := podOf(name, 0)
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceName("kerf.dev/mig-" + profile): resource.MustParse("1")}
	return p
}

// A pod that requests a MIG instance is bound with its place; the next one for the whole GPU waits, and hears for what.
func TestInstanceOnTheBinding(t *testing.T) {
	w := newWorld(t, 1)
	w.migNode("n7")
	p := migPod("small", "1g.10gb")
	s := w.cycle(p)
	if status := w.Filter(t.Context(), s, p, nodeInfo{name: "n0"}); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("a node without MIG: %v", status)
	}
	if status := w.Filter(t.Context(), s, p, nodeInfo{name: "n7"}); !status.IsSuccess() {
		t.Fatalf("Filter: %v", status)
	}
	if status := w.Reserve(t.Context(), s, p, "n7"); !status.IsSuccess() {
		t.Fatalf("Reserve: %v", status)
	}
	if status := w.Bind(t.Context(), s, p, "n7"); !status.IsSuccess() {
		t.Fatalf("Bind: %v", status)
	}
	if got := w.handle.client.bindings[0].Annotations["scheduling.kerf.dev/main"]; got != uuid(7, 0)+"/1g.10gb@6" {
		t.Errorf("bound with %q", got)
	}
	if !slices.ContainsFunc(w.reported(), func(e string) bool {
		return strings.Contains(e, "main: 1g.10gb at 6 of "+
			uuid(7, 0))
	}) {
		t.Errorf("said %q", w.handle.events.said)
	}
	large := migPod("large", "7g.80gb")
	s = w.cycle(large)
	if status := w.Filter(t.Context(), s, large, nodeInfo{name: "n7"}); status.Code() != fwk.Unschedulable {
		t.Errorf("the whole GPU: %v", status)
	}
	_, status := w.PostFilter(t.Context(), s, large, w.handle)
	if want := "needs a MIG instance 7g.80gb: 1 node has GPUs in MIG mode, and no place free on them; 1 node does " +
		"not offer"; !strings.Contains(status.Message(), want) {
		t.Errorf("waits for %q", status.Message())
	}
}
