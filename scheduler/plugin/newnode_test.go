// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestNeedsNode: of the pods that wait, those need a placeholder that fit a node in total and no GPU, and have waited.
func TestNeedsNode(t *testing.T) {
	w := newWorld(t, 1)
	for _, name := range []string{"a", "b"} {
		p := podOf(name, 50)
		p.Spec.NodeName = "n0"
		w.core.pods().OnAdd(p, true)
	}
	w.report(0, claim{"uid-a", 0, 50}, claim{"uid-b", 1, 50})
	for name, gib := range map[string]int{"fits-in-total": 40, "too-large": 100, "too-much": 70} {
		p := podOf(name, gib)
		p.CreationTimestamp = metav1.NewTime(w.clock)
		want, _, err := wantOf(p)
		if err != nil {
			t.Fatal(err)
		}
		w.core.waiting.add(waiting{pod: p, want: want}, nil)
	}
	names := func() []string {
		var out []string
		for _, n := range w.core.needs() {
			out = append(out, n.Pod.Name)
			if !slices.Equal(n.Nodes, []string{"n0"}) {
				t.Errorf("%s: nodes %q", n.Pod.Name, n.Nodes)
			}
		}
		return out
	}
	if got := names(); got != nil {
		t.Errorf("at once: %q", got)
	}
	w.clock = w.clock.Add(settleTime)
	w.core.change("n0", func() { w.core.state.Heartbeat("n0", w.clock, 40*time.Second, w.clock) })
	if got := names(); !slices.Equal(got, []string{"fits-in-total"}) {
		t.Errorf("later: %q", got)
	}
	w.core.waiting.remove(types.UID("uid-fits-in-total"))
	if got := names(); got != nil {
		t.Errorf("after its end: %q", got)
	}
}

// The placeholder goes before the pod gets its node.
func TestBeforeBinding(t *testing.T) {
	w, p := newWorld(t, 1), podOf("p", 60)
	w.report(0)
	s := w.cycle(p)
	if status := w.Reserve(t.Context(), s, p, "n0"); !status.IsSuccess() {
		t.Fatal(status)
	}
	calls := 0
	w.core.beforeBinding = func(_ context.Context, pod *corev1.Pod) {
		if calls++; pod.Name != p.Name || len(w.handle.client.bindings) > 0 {
			t.Errorf("pod %s, bindings %+v", pod.Name, w.handle.client.bindings)
		}
	}
	if status := w.Bind(t.Context(), s, p, "n0"); !status.IsSuccess() || calls != 1 {
		t.Errorf("bind: %v, %d calls before it", status, calls)
	}
}
