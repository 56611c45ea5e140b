// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// stored is a config as the chart of commit b8a025f wrote it.
const stored = "../../config/testdata/v1alpha1/chart.yaml"

func warned(t *testing.T, a *Source) bool {
	t.Helper()
	return slices.ContainsFunc(a.Runtime.State(t.Context()).Warnings, func(w string) bool {
		return strings.Contains(w, "kerf config migrate")
	})
}

// An agent applies a config of the version before, with one warning, until it is converted. What it keeps can be read
// by the agent before it, and by itself without a warning.
func TestStoredVersion(t *testing.T) {
	old, err := os.ReadFile(stored)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(a *Source) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(a.State, LastGood))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	write(old)
	a, log := built(t, file)
	seen := load(a, "")
	s := a.Runtime.State(t.Context())
	if s.Pool != "default" || len(s.ConfigErrors) > 0 || !warned(t, a) {
		t.Fatalf("pool %q, errors %q, warnings %q", s.Pool, s.ConfigErrors, s.Warnings)
	}
	if n := strings.Count(log.String(), "read config of an old version"); n != 1 {
		t.Errorf("%d warnings in the log:\n%s", n, log)
	}
	if kept(a) != string(old) {
		t.Errorf("the agent keeps\n%s", kept(a))
	}
	now, err := config.Migrate(old)
	if err != nil {
		t.Fatal(err)
	}
	write(now)
	load(a, seen)
	if warned(t, a) || a.applied.Hash != config.Hash([]config.File{{Data: now}}) {
		t.Errorf("after the conversion: %q", a.Runtime.State(t.Context()).Warnings)
	}
	if kept(a) != string(old) {
		t.Errorf("after a rollback, the agent of the version before reads\n%s", kept(a))
	}
	write([]byte(badConfig))
	b, _ := built(t, file)
	b.State = a.State
	load(b, "")
	if b.applied.Hash != a.applied.Hash || warned(t, b) {
		t.Errorf("restart on a config with errors: %q", b.Runtime.State(t.Context()).Warnings)
	}
}
