// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// Where no record says what runs and a container runtime will, nobody gets what a container may be running on:
// not even a process of its own. With a record nobody waits.
func TestNothingIsGrantedBeforeTheWitness(t *testing.T) {
	b := newBench(t)
	stop := b.started()
	b.restart(stop, func() {
		b.loseRecord()
	})
	b.AwaitWitness()
	if _, err := b.Claim(t.Context(), b.tenant().Peer, "", gib(10)); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a claim before the witness, without a record: %v", err)
	}
	if err := b.Witness(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Claim(t.Context(), b.tenant().Peer, "", gib(10)); err != nil {
		t.Errorf("a claim after it: %v", err)
	}
	again := newBench(t)
	stop = again.started()
	again.restart(stop, func() {})
	again.AwaitWitness()
	if !again.DriverSeen() || New(again.opt).DriverSeen() {
		t.Error("a driver was seen before one was attached, or not after")
	}
	if _, err := again.Claim(t.Context(), again.tenant().Peer, "", gib(10)); err != nil {
		t.Errorf("a claim before the witness, with a record: %v", err)
	}
}
