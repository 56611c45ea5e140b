// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

const publicDir, publicFile = 0o755, 0o644

// required are the libraries without which a simulated node is of no use.
func required() []string { return []string{"libnvidia-ml.so.1", "libcuda.so.1"} }

// Libraries returns the libraries of a driver: the files with .so in their names in libDir/driver. It is
// sharing.ErrNotFound, with the remedy, when one that is needed is missing.
func Libraries(libDir, driver string) ([]string, error) {
	from := filepath.Join(libDir, driver)
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for libraries: %w", err)
	}
	var names []string
	for _, e := range entries {
		if isLibrary(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	for _, r := range required() {
		if !slices.Contains(names, r) {
			return nil,
				fmt.Errorf("there is no %s in %q; build it with `make build`, or name the folder above with "+
					"--lib-dir: %w",
					r, from, sharing.ErrNotFound)
		}
	}
	paths := make([]string, 0, len(names))
	for _, n := range names {
		paths = append(paths, filepath.Join(from, n))
	}
	return paths, nil
}

func isLibrary(name string) bool {
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
}

// Install copies a driver's libraries to dir/lib and removes those of another driver from there.
func Install(libDir, driver, dir string) error {
	paths, err := Libraries(libDir, driver)
	if err != nil {
		return err
	}
	lib := filepath.Join(dir, "lib")
	if err := os.MkdirAll(lib, publicDir); err != nil {
		return fmt.Errorf("install libraries: %w", err)
	}
	if err := os.Chmod(lib, publicDir); err != nil { // whatever the umask is: tenants load from it
		return fmt.Errorf("install libraries: %w", err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
		if err := Copy(p, filepath.Join(lib, filepath.Base(p)), publicFile); err != nil {
			return fmt.Errorf("install libraries: %w", err)
		}
	}
	entries, err := os.ReadDir(lib)
	if err != nil {
		return fmt.Errorf("install libraries: %w", err)
	}
	for _, e := range entries {
		if isLibrary(e.Name()) && !slices.Contains(names, e.Name()) {
			if err := os.Remove(filepath.Join(lib, e.Name())); err != nil {
				return fmt.Errorf("remove another driver's library: %w", err)
			}
		}
	}
	return nil
}

// Copy puts a copy of from at to. Programs that have the old file loaded keep it.
func Copy(from, to string, mode os.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, copied := io.Copy(tmp, in)
	if err := errors.Join(copied, tmp.Chmod(mode), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), to)
}

// InstallProgram copies a program into dir/bin.
func InstallProgram(from, dir string) error {
	if err := Copy(from, filepath.Join(dir, "bin", filepath.Base(from)), publicDir); err != nil {
		return fmt.Errorf("install programs: %w; build them with `make build`", err)
	}
	return nil
}

// InstallPrograms links an executable into dir/bin under other names, for one that acts by the name it was called by.
func InstallPrograms(executable, dir string, names ...string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, publicDir); err != nil {
		return fmt.Errorf("install programs: %w", err)
	}
	if err := os.Chmod(bin, publicDir); err != nil { // whatever the umask is: tenants may call them
		return fmt.Errorf("install programs: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(bin, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("install programs: %w", err)
		}
		if err := os.Symlink(executable, path); err != nil {
			return fmt.Errorf("install programs: %w", err)
		}
	}
	return nil
}
