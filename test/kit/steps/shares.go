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

// race is one comparison of two programs.
type race struct {
	kind, rule string
	percent    int // of the first program; the second has the rest
}

var races = []race{
	{"train", "strict", 10}, {"decode", "strict", 50}, {"train", "strict", 30}, {"decode", "strict", 10},
	{"train", "strict", 50},
	{"train", "fair", 10}, {"decode", "fair", 30},
}

// shares lets two programs of one kind work at once, each in its grant, and compares what they did with their percent.
func shares(ctx context.Context, b *bench.Bench) error {
	base := map[string]core.Work{}
	for _, kind := range []string{"train", "decode"} {
		w, err := alone(ctx, b, kind, b.Native(), 0, 2)
		if err != nil {
			return err
		}
		base[kind] = w
		b.Fact(kind+" alone", "%.1f units a second, p50 %.3f ms, p99 %.3f ms", w.Rate(), ms(w.P50), ms(w.P99))
	}
	var a *bench.Agent
	rule := ""
	for _, r := range races {
		if r.rule != rule {
			if a != nil {
				a.Stop()
			}
			var err error
			if a, err = b.StartAgent(ctx, sharesPool("libkerf", r.rule)); err != nil {
				return err
			}
			if by, err := enforcedBy(ctx, a); err != nil || by != "libkerf" {
				return noShares(b, a, by, err)
			}
			rule = r.rule
		}
		if err := compete(ctx, b, a, r, base[r.kind]); err != nil {
			return err
		}
	}
	a.Stop()
	return nil
}

// noShares is for a machine on which nothing enforces compute percents.
func noShares(b *bench.Bench, a *bench.Agent, by string, err error) error {
	a.Stop()
	for _, claim := range []string{"share-strict", "share-seconds", "share-fair"} {
		b.Add(core.Impossible(claim, "the compute percent is enforced by "+by))
	}
	return err
}

// granted is a grant of 4 GiB with a compute percent.
func granted(a *bench.Agent, name string, percent int) bench.Way {
	return a.Grant(name, "--memory", "4GiB", "--percent", fmt.Sprint(percent))
}

// compete runs one comparison and judges it.
func compete(ctx context.Context, b *bench.Bench, a *bench.Agent, r race, base core.Work) error {
	ways := [2]bench.Way{granted(a, "first", r.percent), granted(a, "second", 100-r.percent)}
	w, err := pair(ctx, b, [2]string{r.kind, r.kind}, ways, base.Rounds, 8)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s %d:%d %s", r.kind, r.percent, 100-r.percent, r.rule)
	b.SaveJSON(strings.ReplaceAll(strings.ReplaceAll(what, " ", "-"), ":", "-")+".json", w)
	b.Fact(what, "%.1f%% of the work; %.0f%% and %.0f%% of the rate alone; p99 %.3f and %.3f ms",
		core.Share(w[0], w[1])*100, w[0].Rate()/base.Rate()*100, w[1].Rate()/base.Rate()*100, ms(w[0].P99),
		ms(w[1].P99))
	target := float64(r.percent) / 100
	if r.rule == "strict" {
		b.Add(timed(b, core.SharesOf("share-strict", "share-seconds", what, w[0], w[1], target)...)...)
	} else {
		b.Add(timed(b, core.AtLeastShares("share-fair", what, w, base, target)...)...)
	}
	return a.Idle(ctx)
}

// enforcedBy is what enforces the compute percent of shares here. It follows from the levels.
func enforcedBy(ctx context.Context, a *bench.Agent) (string, error) {
	levels, err := a.Levels(ctx)
	if err != nil {
		return "", err
	}
	if slices.Contains(levels, "driver") {
		return "nothing: the backend driver enforces memory alone", nil
	}
	if slices.Contains(levels, "userspace") {
		return "libkerf", nil
	}
	return fmt.Sprintf("nothing: the levels here are %v", levels), nil
}

// latency compares the latency of decode at 30% without and with training at 70%.
func latency(ctx context.Context, b *bench.Bench) error {
	base, err := alone(ctx, b, "train", b.Native(), 0, 0.5)
	if err != nil {
		return err
	}
	a, err := b.StartAgent(ctx, sharesPool("libkerf", "strict"))
	if err != nil {
		return err
	}
	defer a.Stop()
	by, err := enforcedBy(ctx, a)
	if err != nil {
		return err
	}
	quiet, err := alone(ctx, b, "decode", granted(a, "decode", 30), base.Rounds, 5)
	if err != nil {
		return err
	}
	b.Fact("decode alone at 30%", "%.0f tokens a second, p50 %.3f ms, p99 %.3f ms", quiet.Rate(), ms(quiet.P50),
		ms(quiet.P99))
	kinds := [2]string{"decode", "train"}
	bare, err := pair(ctx, b, kinds, [2]bench.Way{b.Native(), b.Native()}, base.Rounds, 5)
	if err != nil {
		return err
	}
	b.Fact("without Kerf", "%.0f tokens a second, p50 %.3f ms, p99 %.3f ms", bare[0].Rate(), ms(bare[0].P50),
		ms(bare[0].P99))
	if err := a.Idle(ctx); err != nil {
		return err
	}
	held, err := pair(ctx, b, kinds, [2]bench.Way{granted(a, "decode", 30), granted(a, "train", 70)}, base.Rounds, 5)
	if err != nil {
		return err
	}
	b.Fact("with libkerf", "%.0f tokens a second, p50 %.3f ms, p99 %.3f ms", held[0].Rate(), ms(held[0].P50),
		ms(held[0].P99))
	if by != "libkerf" {
		b.Add(core.Impossible("latency", "the compute percent is enforced by "+by))
		return nil
	}
	b.Add(timed(b, core.AtMost("latency", "p99 next to training ÷ p99 alone", held[0].P99/max(quiet.P99, 1), 1.3,
		""))...)
	return nil
}
