// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

const twoPools = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: one\n  - name: " +
	"two\n    nodeSelector: {pool: two, kind: gpu}\n"

// The node's labels choose its pool from the first moment, and again when they change. Those of --node-label override
// them. If no API server answers, those of before count.
func TestPoolLabels(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(twoPools), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _ := built(t, file)
	a.Options.Source.Labels = map[string]string{"kind": "gpu"}
	says := func(labels map[string]string) func(context.Context) (map[string]string, error) {
		return func(context.Context) (map[string]string, error) { return labels, nil }
	}
	a.FirstLabels(t.Context(), says(map[string]string{"pool": "two", "kind": "none"}))
	seen := a.First()
	if s := a.Runtime.State(t.Context()); s.Pool != "two" {
		t.Errorf("at the start it is of pool %q", s.Pool)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Watch(ctx, seen) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if a.takeLabels(map[string]string{"pool": "two", "kind": "none"}) {
		t.Error("the same labels are news")
	}
	if !a.takeLabels(map[string]string{"pool": "three"}) {
		t.Error("other labels are no news")
	}
	a.relabelled <- struct{}{}
	eventually.True(t, "pool one by other labels", func() bool { return a.Runtime.State(t.Context()).Pool == "one" })

	b, _ := built(t, file)
	b.Options.Dirs.Dir, b.State = a.Options.Dirs.Dir, a.State
	gone, stop := context.WithCancel(t.Context())
	stop()
	b.FirstLabels(gone, func(context.Context) (map[string]string, error) { return nil, sharing.ErrUnavailable })
	if got := b.Labels(); got["pool"] != "three" || len(b.Runtime.State(t.Context()).Warnings) == 0 {
		t.Errorf("without an answer: labels %v, warnings %q", got, b.Runtime.State(t.Context()).Warnings)
	}
}
