// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
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

// Capabilities are the nodes that let a program use the MIG instance, the GPU instance's first. Their numbers belong to
// the driver's ids, which are given again: they are read anew for each use. Errors: sharing.ErrUnavailable.
func (r *Runtime) Capabilities(g sharing.GPU, d sharing.MIGDevice) ([]string, error) {
	gi := filepath.Join(r.opt.DevRoot, capsTable, fmt.Sprintf("gpu%d/mig/gi%d", g.Minor, d.GI))
	var out []string
	for _, file := range []string{filepath.Join(gi, "access"), filepath.Join(gi, fmt.Sprintf("ci%d/access", d.CI))} {
		minor, err := capMinor(file)
		if err != nil {
			return nil, fmt.Errorf("capability of MIG device %s: %w", d.UUID, err)
		}
		out = append(out, filepath.Join(r.opt.DevRoot, capsFolder, fmt.Sprintf("nvidia-cap%d", minor)))
	}
	return out, nil
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
	dir := filepath.Join(r.opt.DevRoot, capsFolder)
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
