// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// burstQuiet is how long one XID of one GPU is not logged again.
const burstQuiet = 10 * time.Second

// bursts logs XIDs, and of many that are the same the first, and later how many there were since. GPUs and XIDs are few,
// so what it keeps is small.
type bursts struct {
	log *slog.Logger
	now func() time.Time
	of  map[burst]*quiet
}

type burst struct {
	gpu sharing.GPUID
	xid uint64
}

type quiet struct {
	until time.Time
	since int
}

func (b *bursts) tell(gpu sharing.GPUID, xid uint64) {
	if b.of == nil {
		b.of = map[burst]*quiet{}
	}
	key, now := burst{gpu, xid}, b.now()
	q := b.of[key]
	if q != nil && now.Before(q.until) {
		q.since++
		return
	}
	more := 0
	if q != nil {
		more = q.since
	}
	b.of[key] = &quiet{until: now.Add(burstQuiet)}
	b.log.Warn("XID", "gpu", string(gpu), "xid", xid, "class", Classify(xid).String(), "since", more)
}
