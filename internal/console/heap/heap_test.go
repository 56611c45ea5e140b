// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"runtime"
	"testing"
)

// The limit is always above what is live, and its metric is one that Go has.
func TestLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: least, 200 << 20: least, 400 << 20: 480 << 20} {
		if got := limit(live); got != want {
			t.Errorf("limit %d for %d live bytes, want %d", got, live, want)
		}
	}
	kept := make([]byte, 32<<20)
	runtime.GC()
	if n := live(); n < uint64(len(kept)) || n > 1<<30 {
		t.Errorf("%d bytes are live", n)
	}
	runtime.KeepAlive(kept)
}
