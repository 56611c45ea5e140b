// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	sourceVendor = "nvidia.com"
	sourceClass  = "gpu"
	// generate is what to do when the node's specs do not say what they should.
	generate = "run 'nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml' on the node (NVIDIA Container Toolkit 1.15 or newer)"
)

// SourceSpec is one file that declares devices of nvidia.com/gpu.
type SourceSpec struct {
	// Path is the file.
	Path string
	// Devices are those that a container runtime takes from this file: a file of a later folder goes before.
	Devices []specs.Device
	// Common are the edits that come with each of them.
	Common specs.ContainerEdits
}

// Source reads the specs of nvidia.com/gpu as a container runtime does that reads the folders in dirs, in
// their order. Where there is none the error wraps sharing.ErrNotFound, tells of files that cannot be read,
// and says how to make one. A file that container runtimes crash over is sharing.ErrInvalid.
func Source(dirs []string) ([]SourceSpec, error) {
	if err := findHoles(dirs); err != nil {
		return nil, err
	}
	cache, err := cdilib.NewCache(cdilib.WithSpecDirs(dirs...), cdilib.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read cdi specs: %w (%w)", err, sharing.ErrUnavailable)
	}
	var out []SourceSpec
	for _, s := range cache.GetVendorSpecs(sourceVendor) {
		if s.GetClass() != sourceClass {
			continue
		}
		from := SourceSpec{Path: s.GetPath(), Common: s.ContainerEdits}
		for _, d := range s.Devices {
			// A device that another file gives, or two give at the same rank, is not this file's.
			if taken := cache.GetDevice(s.Kind + "=" + d.Name); taken != nil && taken.GetSpec().GetPath() == s.GetPath() {
				from.Devices = append(from.Devices, d)
			}
		}
		if len(from.Devices) > 0 {
			out = append(out, from)
		}
	}
	if len(out) > 0 {
		slices.SortFunc(out, func(a, b SourceSpec) int { return strings.Compare(a.Path, b.Path) })
		return out, nil
	}
	return nil, fmt.Errorf("no cdi spec of %s/%s in %s%s: %s: %w",
		sourceVendor, sourceClass, strings.Join(dirs, ", "), unreadable(cache), generate, sharing.ErrNotFound)
}

// unreadable says why files were passed over that may be the ones that are missed.
func unreadable(cache *cdilib.Cache) string {
	found := cache.GetErrors()
	paths := make([]string, 0, len(found))
	for path := range found {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	var b strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&b, "; %q: %v", path, errors.Join(found[path]...))
	}
	return strings.ReplaceAll(b.String(), "\n", "; ")
}
