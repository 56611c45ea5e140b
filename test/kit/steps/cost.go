// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// cost measures calls without and with libkerf, in turn, so that a drift of the machine meets both.
func cost(ctx context.Context, b *bench.Bench) error {
	r, err := b.NewRegion(b.Machine.Total)
	if err != nil {
		return err
	}
	defer r.Close()
	bare, held := map[string][]float64{}, map[string][]float64{}
	rounds, calls := max(2, int(5*b.Scale)), max(64, int(2048*b.Scale))
	if b.Machine.Lacks[core.NeedKernels] != "" {
		calls = 64 // calls of the simulated driver take long, and say nothing
	}
	for range rounds {
		for _, side := range []struct {
			way  bench.Way
			into map[string][]float64
		}{{b.Native(), bare}, {r.Way(b), held}} {
			var got map[string]float64
			if err := b.Run(ctx, side.way, &got, "cost", "--count", fmt.Sprint(calls)); err != nil {
				return err
			}
			for name, ns := range got {
				side.into[name] = append(side.into[name], ns)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bare)) {
		was, is := core.Median(bare[name]), core.Median(held[name])
		b.Fact(name, "%.3f µs, with libkerf %.3f µs (medians of %d)", was/1e3, is/1e3, rounds)
		switch {
		case strings.HasPrefix(name, "alloc"):
			b.Add(timed(b, core.AtMost("cost-alloc", name, (is-was)/1e3, 1, "µs"))...)
		case strings.HasPrefix(name, "launch"):
			b.Add(timed(b, core.AtMost("cost-launch", name, (is-was)/1e3, 0.3, "µs"))...)
		}
	}
	return starts(ctx, b, r.Way(b))
}

// starts measures how long programs take that do not use CUDA: one, and 32 at once.
func starts(ctx context.Context, b *bench.Bench, held bench.Way) error {
	for _, n := range []int{1, 32} {
		var took [2][]float64
		for range 5 {
			for i, w := range []bench.Way{b.Native(), held} {
				began := time.Now()
				if err := many(ctx, b, w, n); err != nil {
					return err
				}
				took[i] = append(took[i], float64(time.Since(began))/1e6)
			}
		}
		was, is := core.Median(took[0]), core.Median(took[1])
		b.Fact(fmt.Sprintf("start of %d programs", n), "%.2f ms, with libkerf %.2f ms", was, is)
		b.Add(timed(b, core.AtMost("cost-start", fmt.Sprintf("%d programs", n), is-was, 5, "ms"))...)
	}
	return nil
}

func many(ctx context.Context, b *bench.Bench, w bench.Way, n int) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, _, errs[i] = b.Output(ctx, w, b.Program("gpuload"), "--help") })
	}
	all.Wait()
	return errs[0]
}
