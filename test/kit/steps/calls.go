// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// loaded is a line of gpuload: what one process got.
type loaded struct {
	Allocated uint64 `json:"allocated_bytes"`
	Error     string
	Total     uint64 `json:"total_bytes"`
}

const outOfMemory = "CUDA_ERROR_OUT_OF_MEMORY"

// load runs gpuload and returns the line of each of its processes, and its exit status.
func load(ctx context.Context, b *bench.Bench, w bench.Way, args ...string) ([]loaded, int, error) {
	text, code, err := b.Output(ctx, w, b.Program("gpuload"), append([]string{"--json"}, args...)...)
	var out []loaded
	for line := range strings.Lines(text) {
		var l loaded
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &l) == nil {
			out = append(out, l)
		}
	}
	if err == nil && len(out) == 0 && ctx.Err() == nil {
		err = fmt.Errorf("gpuload %s (%s) ended with %d: %s", strings.Join(args, " "), w.Name, code,
			strings.TrimSpace(text))
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, code, err
}

// timed keeps verdicts only where time is real. Elsewhere the numbers are facts without a verdict.
func timed(b *bench.Bench, results ...core.Result) []core.Result {
	why := b.Machine.Lacks[core.NeedKernels]
	if why == "" {
		return results
	}
	var out []core.Result
	for _, r := range results {
		b.Fact("without a verdict: "+r.Claim, "%s", r.Detail)
		out = append(out, core.Impossible(r.Claim, why))
	}
	return out
}

// pair runs two programs of kitload work at the same time, each in its way, for so long. Rounds are the size of a
// kernel.
func pair(ctx context.Context, b *bench.Bench, kinds [2]string, ways [2]bench.Way, rounds uint64,
	seconds float64) (works [2]core.Work, err error) {
	var procs [2]*bench.Proc
	length := fmt.Sprint(b.Time(seconds).Seconds())
	for i, w := range ways {
		if procs[i], err = b.Start(w, b.Program("kitload"), "work", "--kind", kinds[i], "--seconds", length, "--count",
			fmt.Sprint(rounds)); err != nil {
			return works, err
		}
		defer procs[i].End()
	}
	for _, p := range procs {
		if err := ready(ctx, p); err != nil {
			return works, err
		}
	}
	for _, p := range procs {
		p.Next()
	}
	for i, p := range procs {
		if works[i], err = done(ctx, p); err != nil {
			return works, err
		}
	}
	return works, nil
}

// worked is a line of kitload work.
type worked struct {
	core.Work
	Ready        bool
	Failed, Call string
}

func ready(ctx context.Context, p *bench.Proc) error {
	var l worked
	if err := p.Line(ctx, &l); err != nil {
		return err
	}
	if !l.Ready {
		return fmt.Errorf("kitload work: %s in %s", l.Failed, l.Call)
	}
	return nil
}

func done(ctx context.Context, p *bench.Proc) (core.Work, error) {
	var l worked
	if err := p.Line(ctx, &l); err != nil {
		return core.Work{}, err
	}
	if l.Failed != "" {
		return core.Work{}, fmt.Errorf("kitload work: %s in %s", l.Failed, l.Call)
	}
	return l.Work, nil
}

// alone runs one program. With rounds 0 it finds the size of a kernel, which is in the result.
func alone(ctx context.Context, b *bench.Bench, kind string, w bench.Way, rounds uint64, seconds float64) (core.Work,
	error) {
	p, err := b.Start(w, b.Program("kitload"), "work", "--kind", kind, "--seconds",
		fmt.Sprint(b.Time(seconds).Seconds()), "--count", fmt.Sprint(rounds))
	if err != nil {
		return core.Work{}, err
	}
	defer p.End()
	if err := ready(ctx, p); err != nil {
		return core.Work{}, err
	}
	p.Next()
	return done(ctx, p)
}

// ms is a number of nanoseconds in milliseconds.
func ms(ns float64) float64 { return ns / 1e6 }
