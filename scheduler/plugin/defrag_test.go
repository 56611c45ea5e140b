// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kerf-gpu/kerf/internal/kube/defrag"
	"github.com/kerf-gpu/kerf/sharing/defrag/control"
)

// A scheduler acts once after its start, then while something is being moved, and else once a minute while pods wait.
// One that does not lead never acts.
func TestDefragmentsWhilePodsWait(t *testing.T) {
	w := newWorld(t, 1)
	leads, looks, phase := false, 0, control.Idle
	var broken error
	d := &defragmenter{core: w.core, leads: func() bool { return leads },
		act: func(context.Context, time.Time) (defrag.Status, error) {
			looks++
			return defrag.Status{Decision: control.Decision{Record: control.Record{Phase: phase}}}, broken
		}}
	step := func(what string, want int) {
		t.Helper()
		looks = 0
		for range 30 {
			w.clock = w.clock.Add(5 * time.Second)
			d.step(t.Context())
		}
		if looks != want {
			t.Errorf("%s: %d looks, want %d", what, looks, want)
		}
	}
	step("does not lead", 0)
	leads = true
	step("no pod waits", 1)
	broken = errors.New("no API server")
	leads = false
	step("lost the lead", 0)
	leads = true
	step("errors", 30)
	broken, phase = nil, control.Moving
	step("moves", 30)
	phase = control.Idle
	step("done", 1)
	p := podOf("p", 40)
	w.core.mu.Lock()
	w.core.waiting.pods[p.UID] = &waiting{pod: p}
	w.core.mu.Unlock()
	step("a pod waits", 3)
}

// Defragmentation is off by default, and negative limits are rejected.
func TestDefragmentationArgs(t *testing.T) {
	if args, err := readArgs(nil); err != nil || args.Defragmentation.Enabled {
		t.Errorf("%+v, %v", args, err)
	}
	args, err := readArgs(&runtime.Unknown{Raw: []byte(`{"defragmentation":{"enabled":true,"wait":"5m",` +
		`"maxEvictionsPerPoolPerHour":4,"priorityClasses":["batch"]}}`)})
	if d := args.Defragmentation; err != nil || !d.Enabled || d.Wait != 5*time.Minute ||
		d.MaxEvictionsPerPoolPerHour != 4 {
		t.Errorf("%+v, %v", args, err)
	}
	if _, err := readArgs(&runtime.Unknown{Raw: []byte(`{"defragmentation":{"maxMoves":-1}}`)}); err == nil {
		t.Error("negative moves are taken")
	}
}
