// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// attack is a way around libkerf. Held says whether docs/reference/enforcement.md expects that the cap holds in the
// program.
type attack struct {
	what string
	args []string
	held bool
}

var evasions = []attack{
	{"opens the driver with RTLD_DEEPBIND", []string{"--driver", "deepbind"}, true},
	{"opens the driver in a separate name space", []string{"--driver", "namespace"}, true},
	{"a library that was opened with RTLD_DEEPBIND", []string{"--driver", "apart"}, true},
	{"a constructor of such a library", []string{"--driver", "early"}, false},
	{"a library in a separate name space", []string{"--driver", "elsewhere"}, false},
	{"steps of 4 KiB over the cap", []string{"--alloc", "1073745920", "--step", "1GiB"}, true},
}

// attacks try to get more than 1 GiB with libkerf. They touch nothing but their own region.
func attacks(ctx context.Context, b *bench.Bench) error {
	r, err := b.NewUsageFile(gib)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, e := range evasions {
		if err := evade(ctx, b, r.Way(b), e); err != nil {
			return err
		}
	}
	sum, rejected, err := atOnce(ctx, b, r.Way(b), 32)
	if err != nil {
		return err
	}
	b.Fact("32 processes at once", "%.2f GiB, %d rejected", float64(sum)/float64(gib), rejected)
	b.Add(core.Is("attacks", sum <= gib, "32 processes at once: %.2f GiB, %d rejected (the cap was expected to hold)",
		float64(sum)/float64(gib), rejected))
	return evade(ctx, b, r.Way(b).With("libkerf", "LD_PRELOAD="), attack{"an empty LD_PRELOAD", nil, false})
}

// evade runs one attack.
func evade(ctx context.Context, b *bench.Bench, w bench.Way, e attack) error {
	args := e.args
	if !slices.Contains(args, "--alloc") {
		args = append([]string{"--alloc", "2GiB"}, args...)
	}
	list, _, err := load(ctx, b, w, args...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil { // it said nothing, so it got nothing that counts
		b.Fact(e.what, "%v", err)
		b.Add(core.Impossible("attacks", e.what+": "+err.Error()))
		return nil
	}
	sum := uint64(0)
	var met []string
	for _, l := range list {
		sum += l.Allocated
		if l.Error != "" && !strings.Contains(strings.Join(met, " "), l.Error) {
			met = append(met, l.Error)
		}
	}
	for _, m := range met {
		if !strings.HasPrefix(m, "CUDA_") { // the program could not try it
			b.Add(core.Impossible("attacks", e.what+": "+m))
			return nil
		}
	}
	held := sum <= gib
	text := fmt.Sprintf("%s: %.2f GiB, then %v", e.what, float64(sum)/float64(gib), met)
	b.Fact(e.what, "%.2f GiB, then %v", float64(sum)/float64(gib), met)
	b.Add(core.Is("attacks", held == e.held, "%s (the cap was expected to hold: %t)", text, e.held))
	return nil
}
