// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package assigned

import (
	"errors"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestNext has the next step of each progress. No failure is written before the taint is published.
func TestNext(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		p    progress
		want step
		wait time.Duration
	}{
		"new":                           {progress{}, stepRead, 0},
		"concluded":                     {progress{read: true, done: true}, stepNone, 0},
		"read":                          {progress{read: true}, stepCreate, 0},
		"paused":                        {progress{read: true, again: now.Add(time.Second)}, stepNone, time.Second},
		"paused before":                 {progress{read: true, again: now}, stepCreate, 0},
		"created":                       {progress{read: true, created: true}, stepReady, 0},
		"given up":                      {progress{read: true, givenUp: true}, stepTaint, 0},
		"given up and tainted":          {progress{read: true, givenUp: true, tainted: true}, stepFailed, 0},
		"ready before, not created yet": {progress{read: true, ready: true}, stepCreate, 0},
		"ready before, and created":     {progress{read: true, ready: true, created: true}, stepNone, 0},
		"ready before, and given up":    {progress{read: true, ready: true, givenUp: true}, stepNone, 0},
	} {
		if s, wait := tc.p.next(now); s != tc.want || wait != tc.wait {
			t.Errorf("%s: step %d after %v, want %d after %v", name, s, wait, tc.want, tc.wait)
		}
	}
}

// TestAttempted: attempts have growing pauses, and end with a success or after the patience.
func TestAttempted(t *testing.T) {
	start := time.Unix(1000, 0)
	failed, now := errors.New("the driver is busy"), start
	p, attempts := progress{read: true}, 0
	for !p.givenUp {
		p = p.attempted("d", failed, now, now)
		attempts++
		if s, wait := p.next(now); !p.givenUp && (s != stepNone || wait < firstPause || wait > lastPause) {
			t.Fatalf("attempt %d: step %d after %v", attempts, s, wait)
		}
		now = p.again
	}
	if attempts != 5 || p.device != "d" || !errors.Is(p.failure, failed) {
		t.Errorf("%d attempts, %+v", attempts, p)
	}
	p = progress{read: true}.attempted("d", failed, start, start).attempted("", nil, start, start.Add(time.Second))
	if s, _ := p.next(start); s != stepReady || p.failure != nil {
		t.Errorf("after a success: step %d, %+v", s, p)
	}
}

// TestTaints: a taint ends after a time that doubles with each failure, or with a success.
func TestTaints(t *testing.T) {
	const gpu = sharing.GPUID("GPU-a")
	var all taints
	now := time.Unix(1000, 0)
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if !all.set(gpu, now) || all.set(gpu, now) {
			t.Error("one taint is set twice")
		}
		if ended, left := all.expire(now); ended || left != want*time.Minute || !all.has(gpu, now) {
			t.Errorf("ended: %v; it lasts %v, want %d min", ended, left, want)
		}
		now = now.Add(want * time.Minute)
		if ended, left := all.expire(now); !ended || left != 0 || all.has(gpu, now) {
			t.Error("it does not end")
		}
		if ended, _ := all.expire(now); ended {
			t.Error("it ends twice")
		}
	}
	all.set(gpu, now)
	if !all.clear(gpu, now) || all.clear(gpu, now) || all.has(gpu, now) || all.has("GPU-b", now) {
		t.Error("it is not cleared")
	}
	all.set(gpu, now)
	if _, left := all.expire(now); left != firstTaint {
		t.Errorf("after a success, it lasts %v", left)
	}
}
