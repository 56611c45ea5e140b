// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sleep

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if !For(ctx, 2*time.Second) || time.Since(began) != 2*time.Second {
			t.Errorf("the first wait ended after %s", time.Since(began))
		}
		if For(ctx, time.Hour) || time.Since(began) != 3*time.Second {
			t.Errorf("the context ended after %s", time.Since(began))
		}
	})
}
