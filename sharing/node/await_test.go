// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// Without a checkpoint, a container may run on any GPU until the container runtime reports. So no grant is possible
// before. With a checkpoint, no grant has to wait.
func TestNothingIsGrantedBeforeTheRuntimeSync(t *testing.T) {
	b := newBench(t)
	stop := b.started()
	b.restart(stop, func() {
		b.loseRecord()
	})
	b.AwaitRuntimeSync()
	if _, err := b.Reserve(t.Context(), b.tenant().Peer, "", gib(10)); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a grant before the first sync, without a record: %v", err)
	}
	if err := b.SyncRuntime(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(t.Context(), b.tenant().Peer, "", gib(10)); err != nil {
		t.Errorf("a grant after it: %v", err)
	}
	again := newBench(t)
	stop = again.started()
	again.restart(stop, func() {})
	again.AwaitRuntimeSync()
	if !again.DriverSeen() || New(again.opt).DriverSeen() {
		t.Error("a driver was seen before one was attached, or not after")
	}
	if _, err := again.Reserve(t.Context(), again.tenant().Peer, "", gib(10)); err != nil {
		t.Errorf("a grant before the first sync, with a record: %v", err)
	}
}
