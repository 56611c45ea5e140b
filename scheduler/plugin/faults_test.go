// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
)

// filter is what the plugin says of a node.
func (w *world) filter(p *corev1.Pod, node string) *fwk.Status {
	w.Helper()
	return w.Filter(w.Context(), w.cycle(p), p, nodeInfo{name: node})
}

// place takes a pod through a whole cycle on a node, and returns it as the API server then has it.
func (w *world) place(p *corev1.Pod, node string) *corev1.Pod {
	w.Helper()
	s := w.cycle(p)
	if status := w.Filter(w.Context(), s, p, nodeInfo{name: node}); !status.IsSuccess() {
		w.Fatalf("pod %s: %v", p.Name, status)
	}
	if status := w.Reserve(w.Context(), s, p, node); !status.IsSuccess() {
		w.Fatalf("pod %s: %v", p.Name, status)
	}
	if status := w.Bind(w.Context(), s, p, node); !status.IsSuccess() {
		w.Fatalf("pod %s: %v", p.Name, status)
	}
	bound := p.DeepCopy()
	bound.Spec.NodeName = node
	bound.Annotations = w.handle.client.bindings[len(w.handle.client.bindings)-1].Annotations
	return bound
}

// Two schedulers that decide at once put two pods on one GPU. From when each hears of the other's pod, neither puts
// anything there, and what the node says settles it.
func TestTwoSchedulersAtOnce(t *testing.T) {
	one, other := newWorld(t, 1), newWorld(t, 1)
	p, q := one.place(podOf("p", 60), "n0"), other.place(podOf("q", 60), "n0")
	if p.Annotations["scheduling.kerf.dev/main"] != q.Annotations["scheduling.kerf.dev/main"] {
		t.Fatal("they did not meet")
	}
	for _, w := range []*world{one, other} {
		w.core.pods().OnAdd(p, false)
		w.core.pods().OnAdd(q, false)
		// One of them will be on the other GPU, if its node can help.
		if status := w.filter(podOf("r", 30), "n0"); status.Code() != fwk.Unschedulable {
			t.Errorf("after both heard of both: %v", status)
		}
		w.report(0, claim{"uid-q", 0, 60}, claim{"uid-p", 1, 60})
		if status := w.filter(podOf("r", 20), "n0"); status.Code() != fwk.Unschedulable {
			t.Errorf("20 GiB, and 19 are free: %v", status)
		}
		if status := w.filter(podOf("r", 19), "n0"); !status.IsSuccess() {
			t.Errorf("19 GiB are free: %v", status)
		}
	}
}

// A node that is not heard from for 30 s more than its lease takes nothing new; with the next heartbeat, who waited is
// tried again, and what was held is held.
func TestReportThatIsStale(t *testing.T) {
	w := newWorld(t, 1)
	w.report(0, claim{"x", 0, 60})
	w.clock = w.clock.Add(70 * time.Second)
	p := podOf("p", 60)
	s := w.cycle(p)
	if status := w.Filter(t.Context(), s, p, nodeInfo{name: "n0"}); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("stale: %v", status)
	}
	if _, status := w.PostFilter(t.Context(), s, p, nil); !strings.Contains(status.Message(), "not heard from") {
		t.Errorf("why it waits: %q", status.Message())
	}
	w.core.change("n0", func() { w.core.state.Heartbeat("n0", w.clock, 40*time.Second, w.clock) })
	if !slices.Equal(w.handle.woken, []string{"ns/p"}) {
		t.Errorf("woken %q", w.handle.woken)
	}
	if bound := w.place(p, "n0"); bound.Annotations["scheduling.kerf.dev/main"] != uuid(0, 1) {
		t.Errorf("placed on %s, where x is", bound.Annotations["scheduling.kerf.dev/main"])
	}
}

// A GPU that is lost between Reserve and Bind, with more used on it than there is, takes nothing new; the pod is bound
// all the same, and its node chooses another GPU or says that it has none.
func TestGPUThatIsLostWhileReserved(t *testing.T) {
	w, p := newWorld(t, 1), podOf("p", 60)
	s := w.cycle(p)
	if status := w.Reserve(t.Context(), s, p, "n0"); !status.IsSuccess() {
		t.Fatal(status)
	}
	lost := gpunode.Status{Conditions: isReady(), Pool: "default"}
	for g, health := range []string{"lost", "healthy"} {
		o := gpunode.GPU{UUID: uuid(0, g), Index: g, Model: "H100", CapacityBytes: 80 * gib, AllocatableBytes: 79 * gib,
			FreeBytes: 79 * gib, FreePercent: 100, Health: health, Levels: []string{"driver"}}
		if health == "lost" {
			o.FreeBytes, o.FreePercent, o.GrantedBytes = 0, -20, 100*gib
		}
		lost.GPUs = append(lost.GPUs, o)
	}
	w.core.change("n0", func() { w.core.state.Report("n0", lost) })
	// What was planned on the lost GPU is thought to go to the other one.
	if status := w.filter(podOf("q", 20), "n0"); status.Code() != fwk.Unschedulable {
		t.Errorf("in addition to what the lost GPU had: %v", status)
	}
	if status := w.filter(podOf("q", 19), "n0"); !status.IsSuccess() {
		t.Errorf("on the GPU that is well: %v", status)
	}
	if status := w.Bind(t.Context(), s, p, "n0"); !status.IsSuccess() {
		t.Errorf("bind: %v", status)
	}
}

// A plan that no scheduler made, for a full GPU or one of another node, accounts for what its node will choose in
// truth.
func TestForgedPlacement(t *testing.T) {
	for name, forged := range map[string]string{"not enough free": uuid(0, 0), "another node's": uuid(1, 0),
		"no GPU": "GPU-0",
		"two":    uuid(0, 0) + "," + uuid(0, 1)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.report(0, claim{"x", 0, 60})
			p := podOf("forged", 60)
			p.Spec.NodeName = "n0"
			p.Annotations = map[string]string{sharing.PlacementAnnotation("main"): forged}
			w.core.pods().OnAdd(p, false)
			if status := w.filter(podOf("q", 20), "n0"); status.Code() != fwk.Unschedulable {
				t.Errorf("60 GiB of each GPU are gone: %v", status)
			}
			if status := w.filter(podOf("q", 79), "n1"); !status.IsSuccess() {
				t.Errorf("the other node is free: %v", status)
			}
		})
	}
}

// A pod that is created again under its name is another pod. It neither has nor gives back the resources of the old
// one.
func TestSameNameAnotherPod(t *testing.T) {
	w := newWorld(t, 1)
	old := w.place(podOf("p", 60), "n0")
	w.core.pods().OnAdd(old, false)
	w.report(0, claim{"uid-p", 0, 60})
	again := podOf("p", 60)
	again.UID = "uid-again"
	s := w.cycle(again)
	w.core.pods().OnDelete(old)
	if status := w.Reserve(t.Context(), s, again, "n0"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := w.filter(podOf("q", 60), "n0"); status.Code() != fwk.Unschedulable {
		t.Errorf("before the node let go of the old one: %v", status)
	}
	w.core.pods().OnDelete(old) // the second time
	if status := w.Bind(t.Context(), s, again, "n0"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if b := w.handle.client.bindings[1]; b.UID != again.UID || b.Annotations["scheduling.kerf.dev/main"] != uuid(0, 1) {
		t.Errorf("binding %+v", b.ObjectMeta)
	}
	w.report(0)
	if status := w.filter(podOf("q", 60), "n0"); !status.IsSuccess() {
		t.Errorf("after the node let go of the old one: %v", status)
	}
	if status := w.filter(podOf("q", 79), "n0"); !status.IsSuccess() {
		t.Errorf("on the GPU that the old one had: %v", status)
	}
	deleted := again.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{Time: w.clock}
	w.core.pods().OnUpdate(again, deleted) // it goes, and is not gone
	if status := w.filter(podOf("r", 79), "n0"); !status.IsSuccess() {
		t.Errorf("one GPU is free: %v", status)
	}
}

// A pod whose room is gone between Filter and Reserve is tried again, once: at once where another node has room, else
// as soon as there is some.
func TestRoomThatIsGoneAtReserve(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes       int
		first, then []string
	}{
		"other room":      {2, []string{"ns/p"}, []string{"ns/p"}},
		"not enough free": {1, nil, []string{"ns/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := newWorld(t, tc.nodes), podOf("p", 60)
			s := w.cycle(p)
			if status := w.Filter(t.Context(), s, p, nodeInfo{name: "n0"}); !status.IsSuccess() {
				t.Fatal(status)
			}
			w.report(0, claim{"x", 0, 60}, claim{"y", 1, 60})
			if status := w.Reserve(t.Context(), s, p, "n0"); status.Code() != fwk.Unschedulable {
				t.Fatalf("Reserve: %v", status)
			}
			if got := w.handle.woken; !slices.Equal(got, tc.first) {
				t.Errorf("woken %q at once", got)
			}
			w.report(0, claim{"x", 0, 60})
			if got := w.handle.woken; !slices.Equal(got, tc.then) {
				t.Errorf("woken %q after the report", got)
			}
			w.PostFilter(t.Context(), s, p, nil) // in vain, and so it waits again
			w.report(0)
			if got := w.handle.woken; len(got) != 1 {
				t.Errorf("woken %q by a node that had room before", got)
			}
			w.report(0, claim{"x", 0, 60}, claim{"y", 1, 60})
			w.report(0)
			if got := w.handle.woken; len(got) != 2 {
				t.Errorf("woken %q after capacity was free again", got)
			}
		})
	}
}
