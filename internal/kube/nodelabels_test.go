// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestLabelNode(t *testing.T) {
	a := newAPI(t)
	n := newNodeAPI(a)
	n.node.Labels = map[string]string{"theirs": "stays"}
	n.node.Spec.Taints = append(n.node.Spec.Taints, corev1.Taint{Key: StartTaint, Effect: corev1.TaintEffectNoSchedule})
	c := a.client(t, false)
	label := func(l NodeLabels) {
		t.Helper()
		if err := c.LabelNode(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(step string, want map[string]string, patches int, taints ...string) {
		t.Helper()
		n.mu.Lock()
		has, written := maps.Clone(n.node.Labels), n.patches
		n.mu.Unlock()
		delete(has, "theirs")
		if d := cmp.Diff(want, has); d != "" {
			t.Errorf("%s: %s", step, d)
		}
		if _, got := n.shows(); !slices.Equal(got, taints) {
			t.Errorf("%s: taints %v, want %v", step, got, taints)
		}
		if written != patches {
			t.Errorf("%s: %d writes, want %d", step, written, patches)
		}
	}
	own, gfd := map[string]string{"kerf.dev/a": "1", "kerf.dev/b": "2"}, map[string]string{"nvidia.com/gpu.count": "8"}
	all := map[string]string{"kerf.dev/a": "1", "kerf.dev/b": "2", "nvidia.com/gpu.count": "8"}
	label(NodeLabels{Own: own, GFD: gfd})
	shows("before the chain is proven", all, 1, "theirs", StartTaint)
	label(NodeLabels{Own: own, GFD: gfd, Started: true})
	shows("the chain is proven", all, 2, "theirs")
	label(NodeLabels{Own: own, GFD: gfd, Started: true})
	shows("nothing has changed", all, 2, "theirs")
	n.change(func(o *corev1.Node) { o.Labels["kerf.dev/a"] = "other" })
	label(NodeLabels{Own: own, GFD: gfd})
	shows("a user changed one", all, 3, "theirs")
	label(NodeLabels{Own: map[string]string{"kerf.dev/a": "1"}, GFD: gfd})
	shows("one is not wanted any more", map[string]string{"kerf.dev/a": "1", "nvidia.com/gpu.count": "8"}, 4, "theirs")
	n.change(func(o *corev1.Node) { o.Labels[gfdStamp] = "1" })
	label(NodeLabels{Own: own, GFD: gfd})
	shows("GPU feature discovery came", map[string]string{"kerf.dev/a": "1", "kerf.dev/b": "2", gfdStamp: "1"}, 5,
		"theirs")

	if has, err := c.OwnLabels(t.Context()); err != nil || has["theirs"] != "stays" || has["kerf.dev/a"] != "1" {
		t.Errorf("its labels are %v, %v", has, err)
	}
	n.change(func(o *corev1.Node) { o.Spec.Taints = append(o.Spec.Taints, corev1.Taint{Key: StartTaint}) })
	n.race = true
	if err := c.LabelNode(t.Context(), NodeLabels{Own: own, Started: true}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a race that was lost: %v", err)
	}
	n.race, n.denied = false, true
	if err := c.LabelNode(t.Context(), NodeLabels{Own: own}); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("no right to it: %v", err)
	}
}
