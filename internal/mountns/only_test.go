// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// Of a folder only what is named stays, also of what appears later, and outside nothing changes.
func TestOnly(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"cap1", "cap2", "cap3"} {
		if err := os.WriteFile(at(name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	masked(t, nil, func() error {
		if err := mountns.Only(dir, []string{at("cap2")}); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "cap2" {
			t.Errorf("%v %v", entries, err)
		}
		if text, err := os.ReadFile(at("cap2")); err != nil || string(text) != "cap2" {
			t.Errorf("%q %v", text, err)
		}
		if err := os.WriteFile(at("cap4"), nil, 0o600); err == nil {
			t.Error("a file was made in the folder")
		}
		return nil
	})
	masked(t, nil, func() error {
		if err := mountns.Only(dir, nil); err != nil {
			return err
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%v %v", entries, err)
		}
		return nil
	})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("outside: %v %v", entries, err)
	}
}

func TestOnlyRefuses(t *testing.T) {
	dir := t.TempDir()
	masked(t, nil, func() error {
		for _, bad := range [][]string{{"x"}, {"/etc/passwd"}, {dir + "/../y"}} {
			if err := mountns.Only(dir, bad); !errors.Is(err, sharing.ErrInvalid) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if err := mountns.Only("dir", nil); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("a relative folder: %v", err)
		}
		if err := mountns.Only(dir, []string{filepath.Join(dir, "absent")}); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("an absent file: %v", err)
		}
		return nil
	})
}
