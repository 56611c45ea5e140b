// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// Devices are the device files of the GPUs, as this node has them.
func (r *Runtime) Devices(gpus []sharing.GPU) []string {
	out := make([]string, 0, len(gpus))
	for _, g := range gpus {
		out = append(out, filepath.Join(r.opt.DevRoot, "dev", fmt.Sprintf("nvidia%d", g.Minor)))
	}
	return out
}

// Env are variables that tell a program what it was given. No cap depends on them.
func (r *Runtime) Env(a lifecycle.Activated) map[string]string {
	var ids []string
	for _, g := range a.Own {
		ids = append(ids, g.Ref().String())
	}
	env := map[string]string{
		"CUDA_VISIBLE_DEVICES": strings.Join(ids, ","),
		"KERF_GRANT":           string(a.ID),
	}
	if a.Device.UUID != "" {
		env["CUDA_VISIBLE_DEVICES"] = a.Device.UUID
	}
	maps.Copy(env, a.MPS)
	if g, ok := r.Store.Get(a.ID); ok {
		memory, percent := g.Placement.Total()
		env["KERF_MEMORY_BYTES"] = strconv.FormatUint(uint64(memory), 10)
		env["KERF_PERCENT"] = strconv.FormatUint(uint64(percent), 10)
		env["KERF_LEVEL"] = g.Level.String()
	}
	return env
}
