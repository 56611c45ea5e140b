// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// Driver is NVML, read-only.
type Driver struct {
	*nvml.Library
	GPU sharing.GPUID
}

// OpenDriver opens NVML. It rejects each call that changes a GPU.
func (b *Bench) OpenDriver(ctx context.Context) (*Driver, error) {
	lib, err := nvml.Open(ctx, nvml.Options{ReadOnly: true,
		LibraryPaths: nvml.DefaultLibraryPaths(b.variable("LD_LIBRARY_PATH")), CallTimeout: 3 * time.Second})
	if err != nil {
		return nil, err
	}
	return &Driver{lib, sharing.GPUID(b.Machine.UUID)}, nil
}

func (b *Bench) variable(name string) string {
	for _, e := range slices.Backward(b.Env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// Simulated reports whether the library is the simulator's, which has another library next to it.
func (d *Driver) Simulated() bool {
	path, err := filepath.EvalSymlinks(d.Path())
	if err != nil {
		path = d.Path()
	}
	for _, p := range []string{path, d.Path()} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(p), "libgpusim-graphics.so.1")); err == nil {
			return true
		}
	}
	return false
}

// Used is what the driver shows of the GPU: its used memory, and that of each process that it lists.
func (d *Driver) Used(ctx context.Context) (gpu uint64, processes map[int]uint64, err error) {
	m, err := d.Memory(ctx, d.GPU)
	if err != nil {
		return 0, nil, err
	}
	list, err := d.Processes(ctx, d.GPU)
	processes = map[int]uint64{}
	for _, p := range list {
		processes[p.PID] += uint64(p.Used)
	}
	return uint64(m.Used), processes, err
}

// Settled is the used memory of the GPU once it has not fallen for a second, or after ten seconds. A driver frees the
// memory of a process some time after its end.
func (d *Driver) Settled(ctx context.Context) (uint64, error) {
	lowest, _, err := d.Used(ctx)
	end := time.Now().Add(10 * time.Second)
	for since := time.Now(); err == nil && time.Since(since) < time.Second && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for the memory of ended processes: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
		var used uint64
		if used, _, err = d.Used(ctx); err == nil && used < lowest {
			lowest, since = used, time.Now()
		}
	}
	return lowest, err
}

// Settings reads what can be set on each GPU, from NVML and from nvidia-smi if it answers. It omits what neither
// reports.
func (b *Bench) Settings(ctx context.Context, d *Driver) (core.Settings, error) {
	gpus, _, err := d.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	out := core.Settings{}
	for _, g := range gpus {
		id := g.UUID
		if v, err := d.ComputeMode(ctx, id); err == nil {
			out[string(id)+" compute mode"] = fmt.Sprint(v)
		}
		if v, err := d.PowerLimit(ctx, id); err == nil {
			out[string(id)+" power limit (mW)"] = fmt.Sprint(v.Now)
		}
		if v, err := d.MIGMode(ctx, id); err == nil {
			out[string(id)+" MIG mode"] = fmt.Sprintf("%+v", v)
		}
	}
	b.smiSettings(ctx, out)
	return out, nil
}

// smiSettings adds what nvidia-smi tells: all of it, or nothing.
func (b *Bench) smiSettings(ctx context.Context, out core.Settings) {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	const query = "persistence_mode,ecc.mode.current,ecc.mode.pending,accounting.mode,clocks.applications.graphics," +
		"clocks.applications.memory,mig.mode.pending,power.management"
	text, code, err := b.Output(ctx, Way{env: b.environ()}, "nvidia-smi", "--query-gpu=uuid,"+query,
		"--format=csv,noheader")
	if err != nil || code != 0 {
		return
	}
	for line := range strings.Lines(text) {
		if id, values, ok := strings.Cut(strings.TrimSpace(line), ", "); ok && strings.HasPrefix(id, "GPU-") {
			out[core.SMI+id+" "+query] = values
		}
	}
}
