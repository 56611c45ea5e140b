// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Devices are the device files of the GPUs, as this node has them.
func (r *Runtime) Devices(gpus []sharing.GPU) []string {
	out := make([]string, 0, len(gpus))
	for _, g := range gpus {
		out = append(out, filepath.Join(r.opt.DevRoot, "dev", fmt.Sprintf("nvidia%d", g.Minor)))
	}
	return out
}

// capsFolder has the nodes by which the driver lets a program use MIG instances, and capsTable their numbers; both are
// below DevRoot.
const (
	capsFolder = "dev/nvidia-caps"
	capsTable  = "proc/driver/nvidia/capabilities"
)

// Capability is a node that lets a program use a MIG instance.
type Capability struct {
	// Path is where programs in containers look for it, and Host where it is on this node.
	Path, Host string
	// Major and Minor are the device's numbers; Major is 0 where it is no device (the simulated driver's).
	Major, Minor int
}

// Capabilities are the nodes on this node that let a program use the MIG instance, the GPU instance's first. Errors:
// sharing.ErrUnavailable.
func (r *Runtime) Capabilities(g sharing.GPU, d sharing.MIGDevice) ([]string, error) {
	list, err := r.capabilities(g, d)
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.Host
	}
	return out, err
}

// capabilities are the same with all that is known of them. Their numbers belong to the driver's ids, which are given
// again: they are read anew for each use.
func (r *Runtime) capabilities(g sharing.GPU, d sharing.MIGDevice) ([]Capability, error) {
	root := cmp.Or(r.opt.CapsRoot, r.opt.DevRoot)
	major, err := capMajor(filepath.Join(root, "proc/devices"))
	if err != nil {
		return nil, err
	}
	gi := filepath.Join(root, capsTable, fmt.Sprintf("gpu%d/mig/gi%d", g.Minor, d.GI))
	var out []Capability
	for _, file := range []string{filepath.Join(gi, "access"), filepath.Join(gi, fmt.Sprintf("ci%d/access", d.CI))} {
		minor, err := capMinor(file)
		if err != nil {
			return nil, fmt.Errorf("capability of MIG device %s: %w", d.UUID, err)
		}
		name := filepath.Join(capsFolder, fmt.Sprintf("nvidia-cap%d", minor))
		out = append(out, Capability{Path: "/" + name, Host: filepath.Join(root, name), Major: major, Minor: minor})
	}
	return out, nil
}

// capMajor is the number of the capabilities' driver in the kernel's list of drivers, 0 where it has none.
func capMajor(file string) (int, error) {
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

// capMinor reads the number of a capability's node.
func capMinor(file string) (int, error) {
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

// CapsFolder is the folder of the capability nodes, of which a program may see only its own; false on a node without
// one.
func (r *Runtime) CapsFolder() (string, bool) {
	dir := filepath.Join(cmp.Or(r.opt.CapsRoot, r.opt.DevRoot), capsFolder)
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}

// Env are variables that tell a program what it was given. No cap depends on them.
func (r *Runtime) Env(a Armed) map[string]string {
	var ids []string
	for _, g := range a.Own {
		ids = append(ids, string(g.UUID))
	}
	env := map[string]string{
		"CUDA_VISIBLE_DEVICES": strings.Join(ids, ","),
		"KERF_GRANT":           string(a.ID),
	}
	if a.Device.UUID != "" {
		env["CUDA_VISIBLE_DEVICES"] = a.Device.UUID
	}
	maps.Copy(env, a.MPS)
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.ledger.Get(a.ID); ok {
		memory, percent := g.Claim.Placement.Total()
		env["KERF_MEMORY_BYTES"] = strconv.FormatUint(uint64(memory), 10)
		env["KERF_PERCENT"] = strconv.FormatUint(uint64(percent), 10)
		env["KERF_LEVEL"] = g.Claim.Level.String()
	}
	return env
}
