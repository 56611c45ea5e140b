// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
)

// A pod that its node has no room for is evicted after the timeout, once, with the reason in an event; a disruption
// budget puts it off; what goes, or is another pod by now, is left alone.
func TestEvictsWhatItsNodeHasNoRoomFor(t *testing.T) {
	stuck := []gpunode.PendingPod{{PodUID: "uid-p", Namespace: "ns", Pod: "p",
		Reason: "40GiB requested, the most free on one GPU is 19GiB"}}
	for name, tc := range map[string]struct {
		change func(p *corev1.Pod, w *world)
		want   []string
		asked  int
	}{
		"stuck": {func(*corev1.Pod, *world) {}, []string{"p"}, 1},
		"it goes already": {func(p *corev1.Pod, _ *world) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
			nil, 0},
		"another pod": {func(p *corev1.Pod, _ *world) { p.UID = "uid-q" }, nil, 0},
		"a budget": {func(_ *corev1.Pod, w *world) {
			w.handle.client.forbid = apierrors.NewTooManyRequests("budget", 1)
		}, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			p := podOf("p", 40)
			p.Spec.NodeName = "n0"
			p.Annotations = map[string]string{sharing.PlacementAnnotation("main"): uuid(0, 1)}
			w.core.pods().OnAdd(p.DeepCopy(), true)
			known := p.DeepCopy()
			tc.change(known, w)
			e := evicter{core: w.core, after: time.Minute, client: w.handle.client,
				events: func() events.EventRecorderLogger { return w.handle.events },
				pod:    func(string, string) (*corev1.Pod, error) { return known, nil }}
			at := func(after time.Duration) {
				w.clock = w.clock.Add(after)
				w.core.change("n0", func() { w.core.state.Heartbeat("n0", w.clock, 40*time.Second, w.clock) })
				e.look(t.Context())
			}
			at(time.Minute) // not stuck
			w.reportWith(0, stuck)
			for range 3 {
				at(20 * time.Second)
			}
			if w.handle.client.asked != 0 {
				t.Fatal("it was evicted before the timeout")
			}
			for range 3 {
				at(20 * time.Second)
			}
			if got := w.handle.client; !slices.Equal(got.evicted, tc.want) || got.asked != tc.asked {
				t.Errorf("evicted %q, requested %d times", got.evicted, got.asked)
			}
			want := []string{"p Warning GPUPlacementTimeout: Node n0 could not place the pod for 1m0s " +
				"(placementTimeout is 1m0s): 40GiB requested, the most free on one GPU is 19GiB"}
			if tc.want == nil {
				want = nil
			}
			if got := w.handle.events.said; !slices.Equal(got, want) {
				t.Errorf("events %q", got)
			}
		})
	}
}

// Of two schedulers, one standing by, one evicts and says so; the other finds the pod changed, and then that it goes.
func TestOneOfTwoEvicts(t *testing.T) {
	client, said := &api{version: "7"}, &recorder{}
	known := podOf("p", 40)
	known.Spec.NodeName, known.ResourceVersion = "n0", "7"
	known.Annotations = map[string]string{sharing.PlacementAnnotation("main"): uuid(0, 1)}
	for range 2 {
		w := newWorld(t, 1)
		w.core.pods().OnAdd(known.DeepCopy(), true)
		e := evicter{core: w.core, after: time.Second, client: client,
			events: func() events.EventRecorderLogger { return said },
			pod:    func(string, string) (*corev1.Pod, error) { return known, nil }}
		w.reportWith(0, []gpunode.PendingPod{{PodUID: "uid-p", Namespace: "ns", Pod: "p", Reason: "full"}})
		for range 3 {
			w.clock = w.clock.Add(time.Second)
			e.look(t.Context())
		}
	}
	if !slices.Equal(client.evicted, []string{"p"}) || len(said.said) != 1 || client.asked < 2 {
		t.Errorf("evicted %q, requested %d times, said %q", client.evicted, client.asked, said.said)
	}
}
