// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestBind(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at("region"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"region/usage": "0", "region/library": "", "library": "code"} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	masked(t, nil, func() error {
		err := mountns.Bind([]sharing.Mount{
			{Source: at("region"), Target: at("region"), ReadOnly: true},
			{Source: at("library"), Target: at("region/library"), ReadOnly: true},
			{Source: at("region/usage"), Target: at("region/usage")},
		})
		if err != nil {
			return err
		}
		if text, err := os.ReadFile(at("region/library")); err != nil || string(text) != "code" {
			t.Errorf("%q %v", text, err)
		}
		if err := os.WriteFile(at("region/other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("a file where nothing is to be written: %v", err)
		}
		if err := os.WriteFile(at("region/library"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("the library: %v", err)
		}
		return os.WriteFile(at("region/usage"), []byte("1"), 0o600)
	})
	if text, err := os.ReadFile(at("region/library")); err != nil || len(text) != 0 {
		t.Errorf("outside of the namespace: %q %v", text, err)
	}
	if text, err := os.ReadFile(at("region/usage")); err != nil || string(text) != "1" {
		t.Errorf("what was written: %q %v", text, err)
	}
}

// A target may be above its source, which it hides.
func TestBindOverItsOwnParent(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "outer", "inner"), 0o755),
		os.WriteFile(filepath.Join(dir, "outer", "inner", "f"), []byte("1"), 0o600)); err != nil {
		t.Fatal(err)
	}
	outer := filepath.Join(dir, "outer")
	masked(t, nil, func() error {
		file := filepath.Join(outer, "f")
		err := mountns.Bind([]sharing.Mount{
			{Source: filepath.Join(outer, "inner"), Target: outer, ReadOnly: true}, {Source: file, Target: file},
		})
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(outer, "inner")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the source can still be reached: %v", err)
		}
		return os.WriteFile(file, []byte("2"), 0o600)
	})
	if text, err := os.ReadFile(filepath.Join(outer, "inner", "f")); err != nil || string(text) != "2" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestBindRefuses(t *testing.T) {
	err := mountns.OnThread(func() error { return mountns.Bind([]sharing.Mount{{Source: "a", Target: "/b"}}) })
	if !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a relative path: %v", err)
	}
	masked(t, nil, func() error {
		dir := t.TempDir()
		if err := mountns.Bind([]sharing.Mount{{Source: dir, Target: filepath.Join(dir, "absent")}}); !errors.Is(err,
			sharing.ErrUnavailable) {
			t.Errorf("no target: %v", err)
		}
		return nil
	})
}
