// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Monitors that do not answer take one deadline together, and every other monitor answers at once. No more than the
// limit are asked at the same time.
func TestHangingMonitorsDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const monitors, hanging = 200, monitorsAtOnce - 1
		began, answered := time.Now(), make([]time.Duration, monitors)
		asked := make(chan struct{}, monitorsAtOnce)
		errs := eachOf(t.Context(), monitors, func(ctx context.Context, i int) error {
			select {
			case asked <- struct{}{}:
			default:
				t.Error("too many monitors are asked at the same time")
			}
			defer func() { <-asked }()
			if i < hanging {
				<-ctx.Done()
				return ctx.Err()
			}
			answered[i] = time.Since(began)
			return nil
		})
		for i, err := range errs {
			if hangs := i < hanging; hangs != errors.Is(err, context.DeadlineExceeded) || !hangs && err != nil {
				t.Errorf("monitor %d: %v", i, err)
			}
		}
		if late := slices.Max(answered); late > 0 || time.Since(began) != monitorDeadline {
			t.Errorf("a monitor answered after %v, all ended after %v", late, time.Since(began))
		}
	})
}
