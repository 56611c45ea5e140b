// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// A flush wakes the viewers after each kind of change, and only then.
func TestFlushWakes(t *testing.T) {
	h := NewBroadcaster(time.Now)
	report := consoletest.Node("n", 1)
	pod := consoletest.Pod("a", "p", "", map[string]string{sharing.ResourceMemory: "10"})
	for _, c := range []struct {
		name   string
		change func()
		wakes  bool
	}{
		{"a node", func() { h.Node(Node{Live: simulate.LiveNode{Name: "n", Report: &report}}) }, true},
		{"a pod", func() { h.Pod(pod) }, true},
		{"the same pod", func() { h.Pod(pod) }, false},
		{"a pod that is gone", func() { h.RemovePod(pod.UID) }, true},
		{"the source", func() { h.Describe(Meta{Source: "cluster"}) }, true},
		{"nothing", func() {}, false},
		{"a node that is gone", func() { h.RemoveNode("n") }, true},
	} {
		_, _, _, woken := h.Since(model.Cursor{}, nil)
		c.change()
		h.Flush()
		wakes := false
		select {
		case <-woken:
			wakes = true
		default:
		}
		if wakes != c.wakes {
			t.Errorf("%s: wakes %t, want %t", c.name, wakes, c.wakes)
		}
	}
}
