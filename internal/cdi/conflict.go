// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// maxSpec is the largest file that is looked at; no real spec comes near it.
const maxSpec = 64 << 20

// Conflicts looks in all the folders that container runtimes read (dirs) for files that declare one of
// Kerf's kinds and are not the ones that Install wrote in own. Such a file could turn the guard into a name
// without a hook, so with one a node must take no container. The error names every such file with the
// remedy and wraps sharing.ErrConflict, or sharing.ErrUnavailable where a folder or file cannot be read.
func Conflicts(own string, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("list cdi specs: %w (%w)", err, sharing.ErrUnavailable))
			continue
		}
		ours := filepath.Clean(dir) == filepath.Clean(own)
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if e.IsDir() || ext != ".json" && ext != ".yaml" || ours && slices.Contains(ourFiles(), e.Name()) {
				continue
			}
			errs = append(errs, conflict(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func conflict(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile, or a link to nowhere
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSpec {
		return fmt.Errorf("cdi spec %q cannot be looked at: remove it: %w", path, errors.Join(err, sharing.ErrUnavailable))
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cdi spec: %w (%w)", err, sharing.ErrUnavailable)
	}
	if kind, found := declares(data); found {
		return fmt.Errorf("cdi spec %q declares devices of %s, which Kerf alone may: remove it: %w", path, kind, sharing.ErrConflict)
	}
	return nil
}

// declares finds one of Kerf's kinds in a spec. In a file that this library cannot read the name alone
// counts: the container runtime's may be of another version and read it.
func declares(data []byte) (kind string, found bool) {
	s, err := parse(data)
	for _, kind := range []string{sharing.CDIGuard, sharing.CDIAsk, sharing.CDINear, sharing.CDIGPU, sharing.CDIMIG} {
		if err == nil {
			if s.Kind == kind {
				return kind, true
			}
		} else if bytes.Contains(data, []byte(kind)) {
			return kind, true
		}
	}
	return "", false
}
