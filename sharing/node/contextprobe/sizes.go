// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package contextprobe measures what one CUDA context takes on each kind of GPU, and keeps the sizes.
//
// Sizes has the lock of the sizes. Prober is the one goroutine that measures. A helper makes one context on a GPU
// without grants, the driver reports what it takes, and the helper ends. Package contextsize makes the decisions.
package contextprobe

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
)

// Sizes are the measured sizes of contexts. They are safe for concurrent use. A nil *Sizes knows none.
type Sizes struct {
	path string
	mu   sync.Mutex
	by   map[contextsize.Kind]sharing.Bytes
}

// Load reads the sizes that an earlier agent measured; an empty path keeps them in memory alone. A file that cannot be
// used is ignored: the sizes are measured again.
func Load(path string, log *slog.Logger) *Sizes {
	s := &Sizes{path: path, by: map[contextsize.Kind]sharing.Bytes{}}
	if path == "" {
		return s
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	by := s.by
	if err == nil {
		by, err = contextsize.Decode(data)
	}
	switch {
	case errors.Is(err, contextsize.ErrOtherSchema):
		log.Info("ignored sizes of contexts of another version", "file", path)
	case err != nil:
		log.Warn("failed to read sizes of contexts, will measure again", "file", path, "error", err.Error())
	default:
		s.by = by
	}
	return s
}

// Size is the measured size of one context of a kind; ok is false if none was measured.
func (s *Sizes) Size(kind contextsize.Kind) (n sharing.Bytes, ok bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok = s.by[kind]
	return n, ok
}

// Known reports whether the kind was measured.
func (s *Sizes) Known(kind contextsize.Kind) bool {
	_, ok := s.Size(kind)
	return ok
}

// Set takes a measured size into use and writes the file. With an error the size is in use, and not in the file. The
// error wraps sharing.ErrUnavailable.
func (s *Sizes) Set(kind contextsize.Kind, n sharing.Bytes) error {
	s.mu.Lock()
	s.by[kind] = n
	all := maps.Clone(s.by)
	s.mu.Unlock()
	if s.path == "" {
		return nil
	}
	data, err := contextsize.Encode(all)
	if err == nil {
		err = atomicfile.Write(s.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep sizes of contexts: %w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}
