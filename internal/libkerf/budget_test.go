// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestBudgets(t *testing.T) {
	r, _ := region(t, 100)
	if err := errors.Join(r.SetPercent(gpu1, 30), r.AddTokens(gpu1, 5*time.Millisecond, LaunchOpen),
		r.AddTokens(gpu1, -7*time.Millisecond, LaunchOpen), r.AddTokens(gpu0, 0, LaunchOpen),
		r.Settle(gpu1, 3*time.Millisecond), r.Settle(gpu1, -1),
		r.Settle(gpu1, time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	want := []TokenBucket{{GPU: gpu0}, {GPU: gpu1, Percent: 30, Balance: -2 * time.Millisecond,
		Ran: 4 * time.Millisecond}}
	got, err := r.Budgets()
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, err := range []error{r.SetPercent(sharing.GPURef{UUID: "GPU-2"}, 1),
		r.AddTokens(sharing.GPURef{UUID: "GPU-2"}, 1, LaunchOpen), r.Settle(sharing.GPURef{UUID: "GPU-2"}, 1)} {
		if !errors.Is(err, sharing.ErrNotFound) {
			t.Errorf("another GPU: %v", err)
		}
	}
}
