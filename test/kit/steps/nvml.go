// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// question is one read of the driver. Kerf does without the answers to those that are not required.
type question struct {
	name     string
	required bool
	ask      func(context.Context, *bench.Driver) (any, error)
}

var questions = []question{
	{"memory", true, func(c context.Context, d *bench.Driver) (any, error) { return d.Memory(c, d.GPU) }},
	{"processes", true, func(c context.Context, d *bench.Driver) (any, error) { return d.Processes(c, d.GPU) }},
	{"check", true, func(c context.Context, d *bench.Driver) (any, error) { return nil, d.Check(c, d.GPU) }},
	{"utilization", false, func(c context.Context, d *bench.Driver) (any, error) { return d.Utilization(c, d.GPU) }},
	{"process time", false, func(c context.Context, d *bench.Driver) (any, error) {
		return d.ProcessTime(c, d.GPU, time.Now().Add(-time.Second))
	}},
	{"recovery action", false, func(c context.Context, d *bench.Driver) (any,
		error) {
		return d.RecoveryAction(c, d.GPU)
	}},
	{"compute mode", false, func(c context.Context, d *bench.Driver) (any, error) { return d.ComputeMode(c, d.GPU) }},
	{"power limit", false, func(c context.Context, d *bench.Driver) (any, error) { return d.PowerLimit(c, d.GPU) }},
	{"power", false, func(c context.Context, d *bench.Driver) (any, error) { return d.Power(c, d.GPU) }},
	{"signs of health", false, func(c context.Context, d *bench.Driver) (any, error) { return d.Signs(c, d.GPU) }},
	{"telemetry", false, func(c context.Context, d *bench.Driver) (any,
		error) {
		return d.Telemetry(c, d.GPU, nvml.TelemetryRequest{})
	}},
	{"MIG mode", false, func(c context.Context, d *bench.Driver) (any, error) { return d.MIGMode(c, d.GPU) }},
	{"MIG profiles", false, func(c context.Context, d *bench.Driver) (any, error) { return d.MIGProfiles(c, d.GPU) }},
	{"MIG instances", false, func(c context.Context, d *bench.Driver) (any, error) { return d.MIGInstances(c, d.GPU) }},
}

// answer is what is recorded of a question.
type answer struct {
	Name     string  `json:"name"`
	Value    string  `json:"value"`
	Error    string  `json:"error,omitempty"`
	P50, P99 float64 // microseconds
}

// nvmlAnswers asks each question once, and then often enough for its latency.
func nvmlAnswers(ctx context.Context, b *bench.Bench) error {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	var all []answer
	missing := 0
	for _, q := range questions {
		a, err := ask(ctx, d, q, max(10, int(200*b.Scale)), b.Time(0.4))
		if q.required && err != nil {
			missing++
		}
		all = append(all, a)
		text := a.Error
		if text == "" {
			text = "answered"
		}
		b.Fact(q.name, "%s; p50 %.0f µs, p99 %.0f µs", text, a.P50, a.P99)
	}
	b.SaveJSON("answers.json", all)
	b.Add(core.Is("nvml-functions", missing == 0, "%d required answers are missing", missing))
	if err := whileContexts(ctx, b, d); err != nil {
		return err
	}
	return samples(ctx, b, d)
}

// whileContexts asks for the processes while a program starts and makes its context.
func whileContexts(ctx context.Context, b *bench.Bench, d *bench.Driver) error {
	var took []float64
	for range 4 {
		p, err := b.Start(b.Native(), b.Program("kitload"), "stages", "--count", "1")
		if err != nil {
			return err
		}
		made := make(chan error, 1)
		go func() {
			var at stage
			made <- p.Line(ctx, &at)
		}()
		for waiting := true; waiting; {
			began := time.Now()
			if _, err := d.Processes(ctx, d.GPU); err != nil {
				return err
			}
			took = append(took, float64(time.Since(began).Nanoseconds())/1e3)
			select {
			case err = <-made:
				waiting = false
			case <-time.After(2 * time.Millisecond):
			}
		}
		p.End()
		if err != nil {
			return err
		}
	}
	b.Fact("processes while contexts are made", "p50 %.0f µs, p99 %.0f µs, at most %.0f µs", core.Median(took),
		core.Quantile(took, 0.99), core.Quantile(took, 1))
	return nil
}

// ask repeats a question, but not longer than for so long.
func ask(ctx context.Context, d *bench.Driver, q question, times int, longest time.Duration) (answer, error) {
	v, err := q.ask(ctx, d)
	a := answer{Name: q.name, Value: fmt.Sprintf("%+v", v)}
	if err != nil {
		a.Error = err.Error()
	}
	var took []float64
	for first := time.Now(); len(took) < times && time.Since(first) < longest; {
		began := time.Now()
		if _, again := q.ask(ctx, d); again != nil && !errors.Is(again, sharing.ErrUnsupported) && ctx.Err() != nil {
			break
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1e3)
	}
	a.P50, a.P99 = core.Median(took), core.Quantile(took, 0.99)
	return a, err
}

// sampled is one reading of the samples of process time.
type sampled struct {
	Busy int
	Rows map[int]sharing.TimeRow
}

// samples reads the driver's samples ten times a second while nothing, one and two programs are busy.
func samples(ctx context.Context, b *bench.Bench, d *bench.Driver) error {
	var all []sampled
	var seen [3]map[time.Time]bool
	for busy := range 3 {
		seen[busy] = map[time.Time]bool{}
		if busy > 0 {
			p, err := b.Start(b.Native(), b.Program("kitload"), "work", "--seconds", "600", "--count", "20000")
			if err != nil {
				return err
			}
			if err := ready(ctx, p); err != nil {
				return err
			}
			p.Next()
		}
		began := time.Now()
		for time.Since(began) < b.Time(2.7) {
			use, err := d.ProcessTime(ctx, d.GPU, time.Now().Add(-time.Second))
			if err != nil {
				b.Add(core.Is("nvml-samples", false, "%v", err))
				return nil
			}
			all = append(all, sampled{busy, use.Rows})
			for _, row := range use.Rows {
				seen[busy][row.At] = true
			}
			if err := bench.Wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		b.Fact(fmt.Sprintf("samples with %d busy programs", busy), "%d time stamps in %.1f s", len(seen[busy]),
			time.Since(began).Seconds())
	}
	b.SaveJSON("samples.json", all)
	b.Add(core.Is("nvml-samples", len(seen[1]) > 0, "%d and %d time stamps with one and two busy programs",
		len(seen[1]), len(seen[2])))
	return nil
}
