// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package heap keeps the memory of the console small. Most of its heap is the state, which lives long. So it trades
// some CPU for less garbage.
//
// Go's limit of memory has a fixed size, and costs half of the CPU once the live heap reaches it. Here the limit grows
// with the live heap.
package heap

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// percent is how much garbage there may be, in percent of the live heap.
	percent = 25
	// least is the lowest limit, in bytes. A cluster of 5,000 nodes stays below it.
	least = 270 << 20
	// every is how often the limit is set.
	every = 2 * time.Second
	// liveHeap is the metric of what was live at the last collection, in bytes.
	liveHeap = "/gc/heap/live:bytes"
)

// Bound bounds the garbage of this process until ctx ends.
func Bound(ctx context.Context) {
	debug.SetGCPercent(percent)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		debug.SetMemoryLimit(limit(live()))
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// limit is the limit of memory for a live heap.
func limit(live uint64) int64 {
	return max(least, int64(live+live/5)) //nolint:gosec // far below the range
}

func live() uint64 {
	s := []metrics.Sample{{Name: liveHeap}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
