// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package assigned

import (
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// firstTaint is how long a GPU that could not give an instance stays tainted. It doubles up to lastTaint, until the
	// GPU gives one.
	firstTaint = time.Minute
	lastTaint  = 10 * time.Minute
)

// taints are the GPUs that could not give an instance.
type taints struct {
	mu   sync.Mutex
	gpus map[sharing.GPUID]taint
}

type taint struct {
	until time.Time
	last  time.Duration
	// over is true once expire has reported the end.
	over bool
}

// set taints a GPU, unless it is tainted. It reports whether that is new.
func (t *taints) set(gpu sharing.GPUID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.gpus[gpu]
	if now.Before(old.until) {
		return false
	}
	if t.gpus == nil {
		t.gpus = map[sharing.GPUID]taint{}
	}
	last := min(max(2*old.last, firstTaint), lastTaint)
	t.gpus[gpu] = taint{until: now.Add(last), last: last}
	return true
}

// clear ends the taint of a GPU that has given an instance. It reports whether the GPU was tainted.
func (t *taints) clear(gpu sharing.GPUID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := now.Before(t.gpus[gpu].until)
	delete(t.gpus, gpu)
	return was
}

// has reports whether a GPU is tainted.
func (t *taints) has(gpu sharing.GPUID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Before(t.gpus[gpu].until)
}

// expire reports whether a taint has ended that it has not reported yet, and the time until the next one ends. That is
// 0 without a taint.
func (t *taints) expire(now time.Time) (ended bool, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for gpu, one := range t.gpus {
		switch left := one.until.Sub(now); {
		case left <= 0 && !one.over:
			ended, one.over = true, true
			t.gpus[gpu] = one
		case left > 0 && (next == 0 || left < next):
			next = left
		}
	}
	return ended, next
}
