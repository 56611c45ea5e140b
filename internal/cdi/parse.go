// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// errHole: a list of the spec has an empty entry ("- " and nothing behind it). The library, and with it a
// container runtime, takes such a spec and crashes over it.
var errHole = errors.New("an entry of a list is empty")

// parse reads a spec as the library does, and refuses what the library crashes over.
func parse(data []byte) (*specs.Spec, error) {
	s, err := cdilib.ParseSpec(data)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sharing.ErrInvalid)
	}
	if s == nil {
		return nil, fmt.Errorf("it is empty: %w", sharing.ErrInvalid)
	}
	hole := hasHole(s.ContainerEdits)
	for _, d := range s.Devices {
		hole = hole || hasHole(d.ContainerEdits)
	}
	if hole {
		return nil, fmt.Errorf("%w: %w", errHole, sharing.ErrInvalid)
	}
	return s, nil
}

func hasHole(e specs.ContainerEdits) bool {
	return slices.Contains(e.DeviceNodes, nil) || slices.Contains(e.NetDevices, nil) ||
		slices.Contains(e.Hooks, nil) || slices.Contains(e.Mounts, nil)
}

// findHoles names the files in dirs that must not be shown to the library.
func findHoles(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the library passes it over, or tells
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".json" && ext != ".yaml" {
				continue
			}
			path := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			if _, err := parse(data); errors.Is(err, errHole) {
				errs = append(errs, fmt.Errorf("cdi spec %q: %w; mend it or remove it, container runtimes crash over it", path, err))
			}
		}
	}
	return errors.Join(errs...)
}
