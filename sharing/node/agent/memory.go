// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// enough is how much memory the runtime may take before it collects garbage for less than it would by itself.
	enough = 26 << 20
	// spare is what it may take beyond twice what lives, so that it does not collect all the time where more than usual
	// does.
	spare = 8 << 20
	// boundEvery is how often that is looked at.
	boundEvery = 5 * time.Second
)

// boundMemory has garbage collected earlier than GOGC says if memory comes near the bound; below, it delays no
// container start. A limit from outside (GOMEMLIMIT) stays as it is. It returns when ctx ends.
func boundMemory(ctx context.Context) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	t := time.NewTicker(boundEvery)
	defer t.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		metrics.Read(live)
		if live[0].Value.Kind() == metrics.KindUint64 {
			debug.SetMemoryLimit(bound(live[0].Value.Uint64()))
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// bound is the limit for a heap of which so much lives.
func bound(live uint64) int64 {
	const most = 1 << 40 // no agent's; the sum does not wrap
	return int64(max(enough, 2*min(live, most)+spare))
}
