// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/node/options"
)

// driverLibrary is the driver as programs load it.
const driverLibrary = "libcuda.so.1"

// findLibrary finds libkerf.so, and for an agent that serves containers installs it where it outlives the agent. That
// there is none is no error unless it was named: the backend is then not supported.
func (s *Session) findLibrary() error {
	file := s.Options.Containers.Library
	if file == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		file = filepath.Join(filepath.Dir(self), "libkerf.so")
	}
	_, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.Options.Containers.Library == "":
		s.preload = libkerf.Probe{Dir: clientDir(s.Options.Dirs), Missing: file + " does not exist"}
		return nil
	case err != nil:
		return sharing.Invalid("--library", file, "name the path of libkerf.so", "cannot be used: %v", err)
	}
	if s.Options.Containers.Serve || s.Options.Cluster.Serve {
		if file, err = cdi.InstallLibrary(s.Options.Containers.Hooks, s.Options.Version, file); err != nil {
			return fmt.Errorf("install libkerf.so: %w", err)
		}
	}
	s.preload = libkerf.Probe{Dir: clientDir(s.Options.Dirs), Library: file}
	return nil
}

// clientDir holds the regions of the grants that the library holds.
func clientDir(d options.Dirs) string { return filepath.Join(d.Dir, "client") }

// preloadProbe is libkerf as a backend on this driver. Its libraries are in one folder.
func (s *Session) preloadProbe(lib *nvml.Library) libkerf.Probe {
	out := s.preload
	for _, path := range append([]string{lib.Path()}, s.Options.Driver.Libraries...) {
		if filepath.IsAbs(path) {
			out.Drivers = append(out.Drivers, filepath.Join(filepath.Dir(path), driverLibrary))
		}
	}
	return out
}
