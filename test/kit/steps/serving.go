// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// servingSeconds is how long each way to share gets.
const servingSeconds = 7

// serving compares ways to share one GPU between two programs that serve tokens. The ways are memory and compute halved
// by each backend, nothing enforced, and each program alone on the whole GPU.
func serving(ctx context.Context, b *bench.Bench) error {
	one, err := alone(ctx, b, "serve", b.Native(), 0, servingSeconds/2)
	if err != nil {
		return err
	}
	b.Fact("alone on the whole GPU", "%.0f tokens a second, p50 %.3f ms, p99 %.3f ms", one.Rate(), ms(one.P50),
		ms(one.P99))
	var all []core.Serving
	keep := func(backend string, w [2]core.Work, err error) {
		if err != nil {
			b.Fact(backend, "not possible here: %v", err)
			return
		}
		s := core.Serving{Backend: backend, A: w[0], B: w[1]}
		all = append(all, s)
		b.Fact(backend, "%.0f tokens a second in total (%.0f%% of one program alone), %.1f%% of them the first; p50 "+
			"%.3f and %.3f ms; p99 %.3f and %.3f ms",
			s.Total(), s.Total()/max(one.Rate(), 1)*100, core.Share(w[0], w[1])*100, ms(w[0].P50), ms(w[1].P50),
			ms(w[0].P99), ms(w[1].P99))
		b.SaveJSON("all.json", all)
	}
	kinds := [2]string{"serve", "serve"}
	w, err := pair(ctx, b, kinds, [2]bench.Way{b.Native(), b.Native()}, one.Rounds, servingSeconds)
	keep("both without any tool", w, err)
	for _, rule := range []string{"strict", "fair"} {
		w, err := served(ctx, b, "libkerf", rule, one.Rounds)
		keep("libkerf, "+rule, w, err)
		if rule == "strict" {
			judgeServing(b, w, err)
		}
	}
	w, err = served(ctx, b, "mps", "fair", one.Rounds)
	keep("MPS", w, err)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	w, err = served(ctx, b, "driver", "fair", one.Rounds)
	keep("driver", w, err)
	return context.Cause(ctx)
}

func judgeServing(b *bench.Bench, w [2]core.Work, err error) {
	if err != nil {
		b.Add(core.Impossible("serving-equal", err.Error()))
		return
	}
	b.Add(timed(b, core.Within("serving-equal", "part of the first program with libkerf", core.Share(w[0], w[1]), 0.5,
		0.1))...)
}

// served runs the two programs at half of the GPU each, held by one backend. The error says why that is not possible.
func served(ctx context.Context, b *bench.Bench, backend, rule string, rounds uint64) (w [2]core.Work, err error) {
	a, err := b.StartAgent(ctx, sharesPool(backend, rule))
	if err != nil {
		return w, err
	}
	defer a.Stop()
	levels, err := a.Levels(ctx)
	if err != nil {
		return w, err
	}
	has := map[string]bool{}
	for _, l := range levels {
		has[l] = true
	}
	if (backend == "driver") != has["driver"] || (backend != "driver" && !has["userspace"]) {
		return w, fmt.Errorf("shares here have the levels %v", levels)
	}
	memory := fmt.Sprintf("%dMiB", b.Machine.Total/mib*45/100)
	return pair(ctx, b, [2]string{"serve", "serve"}, [2]bench.Way{
		a.Grant("first", "--memory", memory, "--percent", "50"), a.Grant("second", "--memory", memory, "--percent",
			"50"),
	}, rounds, servingSeconds)
}
