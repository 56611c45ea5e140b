// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A GPU in trouble is unhealthy however well it answers, and what the watch said last counts again afterwards.
func TestTrouble(t *testing.T) {
	b := newBench(t)
	b.start()
	id := b.gpus[0].Ref()
	want := func(health sharing.Health, reason string) {
		t.Helper()
		v, _ := b.Store.GPU(id)
		if v.GPU.Health != health || v.GPU.HealthReason != reason {
			t.Errorf("%s %q, want %s %q", v.GPU.Health, v.GPU.HealthReason, health, reason)
		}
	}
	b.SetErrors(map[sharing.GPUID]string{id.UUID: "half an instance"})
	want(sharing.HealthUnhealthy, "half an instance")
	b.SetHealth(id.UUID, sharing.HealthOK, "")
	want(sharing.HealthUnhealthy, "half an instance")
	b.SetHealth(id.UUID, sharing.HealthSuspect, "slow")
	want(sharing.HealthSuspect, "slow")
	b.SetErrors(nil)
	want(sharing.HealthSuspect, "slow")
	b.SetHealth(id.UUID, sharing.HealthOK, "")
	want(sharing.HealthOK, "")
}
