// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package steps are the measurements of the hardware kit. Each records facts and raw data, and adds verdicts on its
// claims.
package steps

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/test/kit/bench"
)

const (
	mib = uint64(1) << 20
	gib = uint64(1) << 30
)

// measure is one step. An error says why it did not come to its end.
type measure func(context.Context, *bench.Bench) error

func measures() map[string]measure {
	return map[string]measure{
		"identity": identity, "settings": settings, "abi": abi, "caps": caps, "serving": serving, "shares": shares,
		"memory": memory,
		"nvml":   nvmlAnswers, "cost": cost, "torch": torch, "latency": latency, "reactive": reactive, "crash": crash,
		"attacks": attacks, "mps": mps, "monitor": monitor,
	}
}

// Run does a step. It ends with the context.
func Run(ctx context.Context, b *bench.Bench) error {
	m, ok := measures()[b.Step]
	if !ok {
		return fmt.Errorf("run step %q: no such step", b.Step)
	}
	err := m(ctx, b)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("the time was over: %w", err)
	}
	return err
}

// settings records what can be set on the GPUs.
func settings(ctx context.Context, b *bench.Bench) error {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := b.Settings(ctx, d)
	if err != nil {
		return err
	}
	return b.Set(s)
}
