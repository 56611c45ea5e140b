// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextprobe

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
)

var kind = contextsize.Kind{Model: "m", Driver: "d"}

func TestSizesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.json")
	s := Load(path, slog.New(slog.DiscardHandler))
	if s.Known(kind) {
		t.Error("known before it was measured")
	}
	if err := s.Set(kind, 7); err != nil {
		t.Fatal(err)
	}
	again := Load(path, slog.New(slog.DiscardHandler))
	if n, ok := again.Size(kind); !ok || n != 7 {
		t.Errorf("%s %v", n, ok)
	}
}

// A file that cannot be used is ignored. That it is of another version is no warning.
func TestFilesThatAreIgnored(t *testing.T) {
	for text, warns := range map[string]bool{`{"schema": 1, "sizes": {"m, driver d": 5}}`: false, `{`: true} {
		var log bytes.Buffer
		path := filepath.Join(t.TempDir(), "contexts.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := Load(path, slog.New(slog.NewTextHandler(&log, nil)))
		if s.Known(kind) || strings.Contains(log.String(), "level=WARN") != warns || log.Len() == 0 {
			t.Errorf("%s: known %v, log %q", text, s.Known(kind), log.String())
		}
		if err := s.Set(kind, 7); err != nil || !Load(path, slog.New(slog.DiscardHandler)).Known(kind) {
			t.Errorf("%s: not replaced: %v", text, err)
		}
	}
}

// A size that cannot be written counts all the same.
func TestAFullDisk(t *testing.T) {
	s := Load(filepath.Join(t.TempDir(), "gone", "contexts.json"), slog.New(slog.DiscardHandler))
	if err := s.Set(kind, 7); !errors.Is(err, sharing.ErrUnavailable) || !s.Known(kind) {
		t.Errorf("%v, known %v", err, s.Known(kind))
	}
	var none *Sizes
	if none.Known(kind) {
		t.Error("without sizes")
	}
	if s := Load("", nil); s.Set(kind, 7) != nil || !s.Known(kind) {
		t.Error("without a file")
	}
}
