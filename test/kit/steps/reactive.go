// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// offender is a program that goes over its cap of 4 GiB.
type offender struct {
	what string
	args []string
	n    int
}

var offenders = []offender{
	{"2 GiB at a time", []string{"--step", "2GiB", "--alloc", "6GiB"}, 15},
	{"64 MiB every 10 ms", []string{"--step", "64MiB", "--every-ms", "10", "--alloc", "12GiB"}, 10},
}

// reactive measures how long programs stay over their cap, and how far they get.
func reactive(ctx context.Context, b *bench.Bench) error {
	a, err := b.StartAgent(ctx, reactivePool)
	if err != nil {
		return err
	}
	defer a.Stop()
	levels, err := a.Levels(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(levels, "reactive") || slices.Contains(levels, "driver") {
		reason := fmt.Sprintf("shares here have the levels %v", levels)
		b.Add(core.Impossible("reactive-kill", reason), core.Impossible("reactive-managed", reason))
		return nil
	}
	if err := managedStays(ctx, b, a); err != nil {
		return err
	}
	own, err := ownContext(ctx, b)
	if err != nil {
		return err
	}
	var delays []float64
	for _, o := range offenders {
		var took, overshoot []float64
		for range max(2, int(float64(o.n)*b.Scale)) {
			delay, most, err := offend(ctx, b, a.Grant("offender", "--memory", "4GiB"), own, o.args)
			if err != nil {
				return err
			}
			took, overshoot = append(took, delay), append(overshoot, most)
		}
		b.Fact(o.what, "ended after p50 %.0f ms, p99 %.0f ms; at most %.2f GiB over", core.Median(took),
			core.Quantile(took, 0.99), core.Quantile(overshoot, 1))
		delays = append(delays, took...)
	}
	b.SaveJSON("delays-ms.json", delays)
	b.Add(timed(b, core.AtMost("reactive-kill", fmt.Sprintf("p99 of %d programs", len(delays)),
		core.Quantile(delays, 0.99), 1000, "ms"))...)
	return nil
}

// grown is a line of kitload grow.
type grown struct {
	PID          int
	At           uint64 `json:"at_ns"`
	Bytes        uint64
	Error        string // the allocation failed; the program holds what it has
	Failed, Call string
}

// ownContext is what a program holds before it allocates.
func ownContext(ctx context.Context, b *bench.Bench) (uint64, error) {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return contextSize(ctx, b, d)
}

// offend runs one program until it is ended. The delay is in milliseconds from its first byte over the cap, the rest in
// GiB. Its own context is in its usage.
func offend(ctx context.Context, b *bench.Bench, w bench.Way, own uint64, args []string) (delay, most float64,
	err error) {
	p, err := b.Start(w, b.Program("kitload"), append([]string{"grow"}, args...)...)
	if err != nil {
		return 0, 0, err
	}
	defer p.End()
	var since, bytes uint64
	for {
		var l grown
		err := p.Line(ctx, &l)
		if errors.Is(err, bench.ErrEnded) {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		if l.Failed+l.Error != "" {
			return 0, 0, fmt.Errorf("kitload grow: %s%s in %s", l.Failed, l.Error, l.Call)
		}
		if bytes = l.Bytes + own; bytes > limit && since == 0 {
			since = l.At
		}
	}
	if since == 0 {
		return 0, 0, fmt.Errorf("a program ended before it was over its cap: %s", p.Says())
	}
	return float64(monotonic()-since) / 1e6, float64(bytes-limit) / float64(gib), nil
}

// monotonic is the clock of kitload, in nanoseconds.
func monotonic() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}

// managedStays shows what becomes of a program whose managed memory is over the cap.
func managedStays(ctx context.Context, b *bench.Bench, a *bench.Agent) error {
	p, err := b.Start(a.Grant("managed", "--memory", "2GiB"), b.Program("kitload"), "grow", "--api", "managed",
		"--step", "1GiB", "--alloc", "4GiB")
	if err != nil {
		return err
	}
	defer p.End()
	for range 4 {
		var l grown
		if err := p.Line(ctx, &l); err != nil || l.Failed+l.Error != "" {
			b.Fact("managed memory", "the program got %d bytes, then %v %s%s", l.Bytes, err, l.Failed, l.Error)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b.Add(core.Is("reactive-managed", false,
				"a program with 4 GiB of managed memory and a cap of 2 GiB was ended"))
			return nil
		}
	}
	select {
	case <-p.Ended():
		b.Add(core.Is("reactive-managed", false, "a program with 4 GiB of managed memory and a cap of 2 GiB was ended"))
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-after(b.Time(4)):
		b.Add(core.Is("reactive-managed", true, "a program with 4 GiB of managed memory and a cap of 2 GiB ran on"))
	}
	return nil
}
