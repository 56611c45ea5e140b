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
	r, err := b.NewUsageFile(b.Machine.Total)
	if err != nil {
		return err
	}
	defer r.Close()
	bare, held := map[string][]float64{}, map[string][]float64{}
	rounds, calls := max(8, int(16*b.Scale)), max(64, int(2048*b.Scale))
	if b.Machine.Lacks[core.NeedKernels] != "" {
		rounds, calls = 2, 64 // calls of the simulated driver take long, and say nothing
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
	var added []core.Result
	for _, name := range slices.Sorted(maps.Keys(bare)) {
		was, is := core.Median(bare[name]), core.Median(held[name])
		b.Fact(name, "%.3f µs, with libkerf %.3f µs (medians of %d)", was/1e3, is/1e3, rounds)
		switch {
		case strings.HasPrefix(name, "alloc"):
			added = append(added, core.Adds("cost-alloc", name, bare[name], held[name], 1000, "ns"))
		case strings.HasPrefix(name, "launch"):
			added = append(added, core.Adds("cost-launch", name, bare[name], held[name], 300, "ns"))
		}
	}
	b.Add(timed(b, certain(b, added)...)...)
	return starts(ctx, b, r.Way(b))
}

// certain leaves out the results that the machine's noise hides, if there are others of the same claim. The report has
// their numbers.
func certain(b *bench.Bench, all []core.Result) (out []core.Result) {
	for _, r := range all {
		hidden := r.Verdict == core.NotPossible
		if hidden {
			b.Fact("without a verdict: "+r.Claim, "%s", r.Detail)
		}
		if !hidden || !slices.ContainsFunc(all, func(x core.Result) bool {
			return x.Claim == r.Claim && x.Verdict != core.NotPossible
		}) {
			out = append(out, r)
		}
	}
	return out
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
