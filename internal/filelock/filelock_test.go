// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestLockSaysWhoHasIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "x.lock")
	first, err := Take(t.Context(), file, "GPU 0", "/run/one")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = Take(ctx, file, "GPU 0", "/run/two")
	if !errors.Is(err, sharing.ErrConflict) || !strings.Contains(err.Error(), "/run/one") ||
		!strings.Contains(err.Error(), "GPU 0") {
		t.Errorf("second lock: %v", err)
	}
	// A former agent that is just being torn down is waited for.
	go func() { time.Sleep(100 * time.Millisecond); first.Release() }()
	second, err := Take(t.Context(), file, "GPU 0", "/run/two")
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}
