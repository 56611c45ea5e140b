// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package sleep waits for a time that a context can end early.
package sleep

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It reports whether all of d has passed.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
