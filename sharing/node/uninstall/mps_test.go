// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/process"
)

// Where an agent had no MPS there is nothing to end, however long the directory's path is. A compute mode to restore
// needs a driver, and its record stays until there is one.
func TestRemoveEndsNoMPS(t *testing.T) {
	r := Removal{Log: slog.New(slog.DiscardHandler), Dir: filepath.Join(t.TempDir(), strings.Repeat("x", 100)),
		Libraries: []string{filepath.Join(t.TempDir(), "libnvidia-ml.so.1")}}
	if err := r.endMPS(t.Context()); err != nil {
		t.Errorf("a long path: %v", err)
	}
	boot, err := process.BootID()
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("/tmp", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	r.Dir = short
	record := filepath.Join(short, "mps", "00000000-0000", "mode.json")
	text := `{"version":1,"bootID":"` + boot + `","gpu":"GPU-00000000-0000-0000-0000-000000000001","before":"default"}`
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--leave-gpu-settings") {
		t.Errorf("without a driver: %v", err)
	}
	if _, err := os.Stat(record); err != nil {
		t.Errorf("what was there before is forgotten: %v", err)
	}
	r.LeaveSettings = true
	if err := r.endMPS(t.Context()); err != nil {
		t.Errorf("left as it is: %v", err)
	}
}
