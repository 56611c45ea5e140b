// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

const (
	// busyPause and idlePause are the times between two events of placements, while pods are being bound and else.
	busyPause, idlePause = 100 * time.Millisecond, 10 * time.Millisecond
	// mostUntold bounds the placements whose events wait.
	mostUnreported = 10_000
)

// placed is a placement whose event is to be written.
type placed struct {
	recorder events.EventRecorderLogger
	// pod is no more than its name: the object would be kept until then.
	pod        *corev1.ObjectReference
	node, text string
}

func (p placed) write() {
	p.recorder.Eventf(p.pod, nil, corev1.EventTypeNormal, reasonAssigned, "Binding", "Assigned GPUs of node %s: %s.",
		p.node, p.text)
}

// pacer writes the events of placements without slowing the binding of pods down: an event costs the API server about
// as much as a Binding. While pods are being bound, it writes few, and the rest afterwards. So an event may come late
// if thousands of pods are bound at once, and it is left out if still more wait. The line in the log is written at once
// and for each placement.
type pacer struct {
	queue chan placed
	// binding counts the pods that are being bound now.
	binding atomic.Int64
}

func newPacer() *pacer { return &pacer{queue: make(chan placed, mostUnreported)} }

// add has an event written; false where too many wait.
func (p *pacer) add(one placed) bool {
	select {
	case p.queue <- one:
		return true
	default:
		return false
	}
}

// run writes the events until ctx ends; pause waits for a time, and is false when ctx ended meanwhile.
func (p *pacer) run(ctx context.Context, pause func(context.Context, time.Duration) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-p.queue:
			wait := idlePause
			if p.binding.Load() > 0 {
				wait = busyPause
			}
			if !pause(ctx, wait) {
				return
			}
			one.write()
		}
	}
}

// pause implements the one of run by the clock.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
