// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps"
)

// driverLibrary is the driver as programs load it.
const driverLibrary = "libcuda.so.1"

// findLibrary finds libkerf.so, and for an agent that serves containers installs it where it outlives the agent. That
// there is none is no error unless it was named: the backend is then not supported.
func (a *agent) findLibrary() error {
	file := a.opt.Containers.Library
	if file == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		file = filepath.Join(filepath.Dir(self), "libkerf.so")
	}
	_, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && a.opt.Containers.Library == "":
		a.preload = caps.Libkerf{Dir: a.clientDir(), Missing: file + " does not exist"}
		return nil
	case err != nil:
		return sharing.Invalid("--library", file, "name the path of libkerf.so", "cannot be used: %v", err)
	}
	if a.opt.Containers.Serve || a.opt.Cluster.Serve {
		if file, err = cdi.InstallLibrary(a.opt.Containers.Hooks, a.opt.Version, file); err != nil {
			return fmt.Errorf("install libkerf.so: %w", err)
		}
	}
	a.preload = caps.Libkerf{Dir: a.clientDir(), Library: file}
	return nil
}

// clientDir holds the regions of the grants that the library holds.
func (a *agent) clientDir() string { return filepath.Join(a.opt.Dirs.Dir, "client") }

// preloadProbe is the library as a backend on this driver: its libraries lie beside each other.
func (a *agent) preloadProbe(lib *nvml.Library) caps.Libkerf {
	out := a.preload
	for _, path := range append([]string{lib.Path()}, a.opt.Driver.Libraries...) {
		if filepath.IsAbs(path) {
			out.Drivers = append(out.Drivers, filepath.Join(filepath.Dir(path), driverLibrary))
		}
	}
	return out
}
