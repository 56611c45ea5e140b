// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
)

// One plan after the other for random GPUs of each model with MIG: for one wish, for one to seven, and for layouts of
// one to seven. p99 is of single plans, in microseconds. state-p50 and state-p99 are of the states, each the best of
// seven runs, so that other programs do not change it.
func BenchmarkMake(b *testing.B) {
	for _, name := range []string{"a30x2", "a100x8", "h100x8", "h200x8", "b200x8", "rtxpro6000x4"} {
		b.Run(name+"/pod", func(b *testing.B) { bench(b, name, 1, false) })
		b.Run(name+"/pods", func(b *testing.B) { bench(b, name, 7, false) })
		b.Run(name+"/layout", func(b *testing.B) { bench(b, name, 7, true) })
	}
}

func bench(b *testing.B, machine string, most int, exact bool) {
	table := table(b, machine)
	values := mig.NewValues(table, nil)
	r := rand.New(rand.NewPCG(9, 10))
	var asks []plan.Request
	for len(asks) < 1000 {
		w := wishes(table, r, most)
		if !exact || plan.Possible(table, w) == nil {
			asks = append(asks, plan.Request{Table: table, Values: values, Have: random(table, r).have, Wishes: w,
				Exact: exact})
		}
	}
	var took []time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		if _, err := plan.Make(asks[n%len(asks)]); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		n++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
	took = took[:0]
	for _, ask := range asks {
		best := time.Hour
		for range 7 {
			start := time.Now()
			if _, err := plan.Make(ask); err != nil {
				b.Fatal(err)
			}
			best = min(best, time.Since(start))
		}
		took = append(took, best)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "state-p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "state-p99-µs")
	b.ReportMetric(float64(took[len(took)-1].Nanoseconds())/1000, "state-max-µs")
}
