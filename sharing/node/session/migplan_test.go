// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig/manager"
)

// One who asks for a plan while stock is taken of the GPUs is answered when that is done, and not kept for ever.
func TestCutterInUse(t *testing.T) {
	var cut atomic.Pointer[manager.Manager]
	if got := cutterInUse(t.Context(), &cut, time.Millisecond); got != nil {
		t.Errorf("there is none, and it found %v", got)
	}
	want := &manager.Manager{}
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		time.Sleep(20 * time.Millisecond) // so that it mostly has to wait; it finds it either way
		cut.Store(want)
	}()
	if got := cutterInUse(t.Context(), &cut, time.Minute); got != want {
		t.Errorf("it found %v, want the one that came", got)
	}
	<-stored
}
