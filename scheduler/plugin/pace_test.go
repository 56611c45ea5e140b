// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// Events are written in their order, with long pauses between them while pods are being bound, and short ones else.
func TestEventsWaitWhilePodsAreBound(t *testing.T) {
	p, r := newPacer(), &recorder{}
	for i := range 4 {
		p.add(placed{recorder: r, pod: &corev1.ObjectReference{Name: strconv.Itoa(i)}, node: "n", text: "t"})
	}
	var pauses []time.Duration
	p.binding.Add(1)
	p.run(t.Context(), func(_ context.Context, d time.Duration) bool {
		if pauses = append(pauses, d); len(pauses) == 2 {
			p.binding.Add(-1)
		}
		return len(pauses) < 4 // then the scheduler ends
	})
	if d := cmp.Diff([]time.Duration{busyPause, busyPause, idlePause, idlePause}, pauses); d != "" {
		t.Errorf("pauses (-want +got):\n%s", d)
	}
	want := []string{"0 Normal GPUAssigned: Assigned GPUs of node n: t.",
		"1 Normal GPUAssigned: Assigned GPUs of node n: t.", "2 Normal GPUAssigned: Assigned GPUs of node n: t."}
	if d := cmp.Diff(want, r.said); d != "" {
		t.Errorf("written (-want +got):\n%s", d)
	}
}

func TestTooManyEventsAreLeftOut(t *testing.T) {
	p := newPacer()
	for i := range mostUnreported {
		if !p.add(placed{}) {
			t.Fatalf("event %d is left out", i)
		}
	}
	if p.add(placed{}) {
		t.Error("there is no end to the events that wait")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if pause(ctx, time.Hour) {
		t.Error("a pause goes on after the end")
	}
	if !pause(t.Context(), 0) {
		t.Error("a pause that is over is taken for the end")
	}
}
