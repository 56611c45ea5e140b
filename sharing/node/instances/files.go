// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// folder has the device nodes that let a program use MIG instances, and table their numbers. Both are below Files.Root.
const (
	folder = "dev/nvidia-caps"
	table  = "proc/driver/nvidia/capabilities"
)

// Files are the driver's files about MIG instances.
type Files struct {
	// Root holds dev/nvidia-caps and proc/driver/nvidia/capabilities.
	Root string
}

// Capability is a device node that lets a program use a MIG instance.
type Capability struct {
	// Path is its path in containers, and Host its path on this node.
	Path, Host string
	// Major and Minor are the device's numbers. Major is 0 if it is no device, as with the simulator.
	Major, Minor int
}

// Capabilities are those of a MIG device, first that of its GPU instance. The driver reuses their numbers, so that they
// are read for each use. The error is sharing.ErrUnavailable.
func (f Files) Capabilities(g sharing.GPU, d sharing.MIGDevice) ([]Capability, error) {
	major, err := major(filepath.Join(f.Root, "proc/devices"))
	if err != nil {
		return nil, err
	}
	gi := filepath.Join(f.Root, table, fmt.Sprintf("gpu%d/mig/gi%d", g.Minor, d.GI))
	var out []Capability
	for _, file := range []string{filepath.Join(gi, "access"), filepath.Join(gi, fmt.Sprintf("ci%d/access", d.CI))} {
		minor, err := minor(file)
		if err != nil {
			return nil, fmt.Errorf("capability of MIG device %s: %w", d.UUID, err)
		}
		name := filepath.Join(folder, fmt.Sprintf("nvidia-cap%d", minor))
		out = append(out, Capability{Path: "/" + name, Host: filepath.Join(f.Root, name), Major: major, Minor: minor})
	}
	return out, nil
}

// Folder is the folder of all capabilities, of which a program may see only its own; false if the node has none.
func (f Files) Folder() (string, bool) {
	dir := filepath.Join(f.Root, folder)
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}

// Allowed are the IDs of the GPU instances whose capability is among the names of device files. An instance whose
// capability cannot be read counts.
func (f Files) Allowed(g sharing.GPU, names []string) []int {
	found, err := filepath.Glob(filepath.Join(f.Root, table, fmt.Sprintf("gpu%d/mig/gi*/access", g.Minor)))
	if err != nil {
		return nil
	}
	var out []int
	for _, file := range found {
		gi, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "gi"))
		if err != nil {
			continue
		}
		minor, err := minor(file)
		if err != nil || slices.Contains(names, fmt.Sprintf("nvidia-cap%d", minor)) {
			out = append(out, gi)
		}
	}
	return out
}

// major is the number of the capabilities' driver in the kernel's list of drivers, 0 if it is not there.
func major(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == "nvidia-caps" {
			if n, err := strconv.Atoi(f[0]); err == nil && n > 0 {
				return n, nil
			}
		}
	}
	return 0, nil
}

// minor reads the number of a capability.
func minor(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "DeviceFileMinor:"); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n >= 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("%s has no DeviceFileMinor: %w", file, sharing.ErrUnavailable)
}
