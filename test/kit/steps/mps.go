// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

const mpsControl = "nvidia-cuda-mps-control"

// mps starts a daemon in new folders and records its answers. The compute mode stays as it is.
func mps(ctx context.Context, b *bench.Bench) error {
	dir := filepath.Join(b.Work, "mps")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	way := b.Native().With("MPS", "CUDA_MPS_PIPE_DIRECTORY="+dir, "CUDA_MPS_LOG_DIRECTORY="+dir)
	text, code, err := b.Output(ctx, way, mpsControl, "-d")
	b.Fact("start", "status %d: %s", code, strings.TrimSpace(text))
	if err != nil || code != 0 {
		b.Add(core.Is("mps-starts", false, "the daemon ended with %d: %s (%v)", code, strings.TrimSpace(text), err))
		return nil
	}
	defer func() { _ = tellMPS(ctx, b, way, "quit -t 2") }()
	limited := way.With("MPS", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G")
	list, _, err := load(ctx, b, limited, "--alloc", "2GiB", "--step", "128MiB")
	if err != nil {
		return err
	}
	b.Add(core.Is("mps-limit", list[0].Error == outOfMemory && list[0].Allocated <= gib,
		"%.2f GiB with a limit of 1 GiB, then %q", float64(list[0].Allocated)/float64(gib), list[0].Error))
	p, err := b.Start(way, b.Program("kitload"), "stages", "--count", "1")
	if err != nil {
		return err
	}
	defer p.End()
	var at stage
	if err := p.Line(ctx, &at); err != nil {
		return err
	}
	answers := 0
	server := tellMPS(ctx, b, way, "get_server_list")
	for _, question := range []string{"get_default_active_thread_percentage", "ps", "get_server_status " + server,
		"get_client_list " + server} {
		answer := tellMPS(ctx, b, way, question)
		if answer != "" {
			answers++
		}
		b.Fact(question, "%s", answer)
	}
	p.End()
	quit := tellMPS(ctx, b, way, "quit -t 2")
	b.Fact("quit", "%s", quit)
	b.Add(core.Is("mps-starts", at.Stage == "context" && answers > 0, "a client got its context; %d answers", answers))
	return nil
}

// tellMPS gives the daemon a command and returns what it answers.
func tellMPS(ctx context.Context, b *bench.Bench, w bench.Way, command string) string {
	p, err := b.Start(w, mpsControl)
	if err != nil {
		return fmt.Sprint(err)
	}
	return p.Talk(ctx, command)
}
