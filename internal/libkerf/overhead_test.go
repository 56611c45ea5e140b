// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// What was reserved for a context is taken over as it was seen, and only then.
func TestCorrect(t *testing.T) {
	for name, tc := range map[string]struct {
		owner         uint64
		held, waiting uint64
		wantHeld      uint64
		wantWaiting   uint64
	}{
		"as seen":              {owner(5, 9), 50, 20, 30, 0},
		"more meanwhile":       {owner(5, 9), 70, 40, 70, 40},
		"of another":           {owner(5, 8), 50, 20, 50, 20},
		"given back meanwhile": {owner(5, 9), 10, 20, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := region(t, 1000)
			s := &r.usage.slot[7]
			s.owner, s.held[0], s.waiting[0], r.usage.total[0].bytes = tc.owner, tc.held, tc.waiting, 100
			if err := r.Correct(gpu0, 25, []Reserved{{Process{PID: 5, Start: 9}, 20}}); err != nil {
				t.Fatal(err)
			}
			u := r.Usage()[0]
			if s.held[0] != tc.wantHeld || s.waiting[0] != tc.wantWaiting || u.Overhead != 25 ||
				uint64(u.Used) != 100-(tc.held-tc.wantHeld) {
				t.Errorf("held %d, waiting %d, %+v", s.held[0], s.waiting[0], u)
			}
			if m := r.limits.device[0].moves; m != 2 {
				t.Errorf("moves is %d, want two steps", m)
			}
		})
	}
	r, files := region(t, 1000)
	for _, err := range []error{r.Correct(sharing.GPURef{UUID: "GPU-x"}, 1, nil),
		r.SetContext(sharing.GPURef{UUID: "GPU-x"}, 1), r.SetBound(sharing.GPURef{UUID: "GPU-x"}, 1),
		r.SawContext(sharing.GPURef{UUID: "GPU-x"}, 1)} {
		if !errors.Is(err, sharing.ErrNotFound) {
			t.Errorf("another GPU: %v", err)
		}
	}
	// An agent that dies in between lets no process wait.
	r.limits.device[1].moves = 5
	again, err := Open(files[0][:len(files[0])-len("/"+LimitsFile)])
	if err != nil {
		t.Fatal(err)
	}
	if r.limits.device[1].moves != 6 {
		t.Errorf("moves is %d after the next agent has come", r.limits.device[1].moves)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
