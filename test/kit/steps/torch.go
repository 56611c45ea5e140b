// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

//go:embed torch.py
var torchProgram string

// torched is what torch.py prints. Rates are in units a second.
type torched struct {
	Version string             `json:"version"`
	Rates   map[string]float64 `json:"rates"`
	Total   uint64             `json:"total_bytes"`
	OOM     bool               `json:"oom"`
	Back    bool               `json:"recovered"`
	Error   string             `json:"error"`
}

const torchCap = 24 * gib

// torch runs PyTorch without and with libkerf.
func torch(ctx context.Context, b *bench.Bench) error {
	bare, err := python(ctx, b, b.Native(), "rates")
	if err != nil {
		reason := "PyTorch does not run: " + err.Error()
		b.Add(core.Impossible("torch-speed", reason), core.Impossible("torch-cap", reason))
		return nil
	}
	b.Fact("PyTorch", "%s", bare.Version)
	r, err := b.NewUsageFile(torchCap)
	if err != nil {
		return err
	}
	defer r.Close()
	held, err := python(ctx, b, r.Way(b), "rates")
	if err != nil {
		b.Add(core.Is("torch-speed", false, "it fails with libkerf: %v", err))
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(bare.Rates)) {
		was, is := bare.Rates[name], held.Rates[name]
		b.Fact(name, "%.2f a second, with libkerf %.2f", was, is)
		b.Add(core.Is("torch-speed", is >= 0.99*was, "%s: %.1f%%", name, is/max(was, 1e-9)*100))
	}
	for _, config := range []string{"", "expandable_segments:True", "backend:cudaMallocAsync"} {
		got, err := python(ctx, b, r.Way(b).With("libkerf", "PYTORCH_CUDA_ALLOC_CONF="+config), "limits")
		if err != nil {
			b.Add(core.Is("torch-cap", false, "%s: %v", config, err))
			continue
		}
		b.Fact("allocator "+config, "sees %.2f GiB, out of memory %t, recovered %t", float64(got.Total)/float64(gib),
			got.OOM, got.Back)
		b.Add(core.Is("torch-cap", got.Total == torchCap && got.OOM && got.Back,
			"allocator %q: sees %d bytes, out of memory: %t, recovered: %t",
			config, got.Total, got.OOM, got.Back))
	}
	return nil
}

// python runs a part of torch.py, below another name.
func python(ctx context.Context, b *bench.Bench, w bench.Way, part string) (t torched, err error) {
	file := filepath.Join(b.Work, "rates.py") // a file torch.py would hide the module torch
	if err := os.WriteFile(file, []byte(torchProgram), 0o644); err != nil {
		return t, err
	}
	text, code, err := b.Output(ctx, w, "python3", file, part, fmt.Sprint(b.Scale))
	if err != nil {
		return t, err
	}
	if ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	last := ""
	for line := range strings.Lines(text) { // warnings may follow the result
		if strings.HasPrefix(line, "{") || !strings.HasPrefix(last, "{") {
			last = strings.TrimSpace(line)
		}
	}
	if code != 0 || json.Unmarshal([]byte(last), &t) != nil || t.Error != "" {
		return t, fmt.Errorf("status %d: %s", code, last)
	}
	return t, nil
}
