// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// A driver's samples, however wrong, never disturb shares that are charged for what they use. Each is within a tenth of
// its target in any ten seconds, and within five points in any one.
func TestSharesUnderSamples(t *testing.T) {
	const seconds, seeds = 60, 8
	for name, n := range map[string]noise{
		"samples": {}, "stale": {stale: 40}, "missing": {missing: 40}, "all missing": {missing: 100},
		"dead": {dead: 40}, "garbage": {garbage: 40},
		"all of it": {stale: 20, missing: 20, dead: 20, garbage: 20},
	} {
		for _, kernel := range []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond} {
			t.Run(fmt.Sprint(name, ", kernels of ", kernel), func(t *testing.T) {
				t.Parallel()
				worstSecond, worstTen := 0.0, 0.0
				for seed := range uint64(seeds) {
					g := newExclusive(t, seed, kernel, n, 100, 100)
					parts := g.play(seconds)
					for i, p := range g.programs {
						target, ten := float64(p.percent)/100, 0.0
						for s := range parts {
							off := parts[s][i] - target
							worstSecond = max(worstSecond, off, -off)
							if ten += off; s >= 10 {
								ten -= parts[s-10][i] - target
							}
							if s >= 9 {
								worstTen = max(worstTen, ten/10/target, -ten/10/target)
							}
						}
					}
				}
				t.Logf("off by %.2f points in a second, by %.1f percent of the target in ten", 100*worstSecond,
					100*worstTen)
				if worstSecond > 0.05 || worstTen > 0.1 {
					t.Errorf("off by %.2f points in a second, by %.1f percent of the target in ten", 100*worstSecond,
						100*worstTen)
				}
			})
		}
	}
}

// Kerf's report of the use of time is right, whatever charges are worth and whatever is wrong with the samples. It is
// within its error, or unknown. Shares of wrongly charged programs come nearer to their targets than they would by
// charges alone, or stay as they are.
func TestWrongChargesUnderSamples(t *testing.T) {
	const seconds = 600
	for _, worth := range [][]int{{50, 100}, {250, 100}, {100, 50}, {100, 250}} {
		for name, n := range map[string]noise{"samples": {}, "all of it": {stale: 20, missing: 20, dead: 20,
			garbage: 20}, "all missing": {missing: 100}} {
			t.Run(fmt.Sprintf("%v percent, %s", worth, name), func(t *testing.T) {
				t.Parallel()
				g := newExclusive(t, 1, 2*time.Millisecond, n, worth...)
				reported, wrong := 0, 0
				var parts [][]float64
				g.each = func(second []float64) {
					parts = append(parts, second)
					if len(parts) < 10 {
						return
					}
					for i, p := range g.programs {
						ten := 0.0
						for _, s := range parts[len(parts)-10:] {
							ten += 10 * s[i]
						}
						if p.known {
							reported++
							if math.Abs(p.share.Percent-ten) > 3*p.share.Error+1 || p.share.Least > ten+1 {
								wrong++
							}
						}
					}
				}
				g.play(seconds)
				if reported > 0 && n.missing == 100 || wrong > 10+reported/50 { // one chance is in ten answers
					t.Errorf("reported %d times, wrong %d times", reported, wrong)
				}
				for i, p := range g.programs {
					first, last := 0.0, 0.0
					for _, s := range parts[1:10] {
						first += s[i] / 9
					}
					for _, s := range parts[len(parts)-100:] {
						last += s[i] / 100
					}
					aim := float64(p.percent) / 100
					t.Logf("%s: %.1f percent at first, %.1f at last", p.id, 100*first, 100*last)
					if math.Abs(last-aim) > math.Abs(first-aim)+0.01 {
						t.Errorf("%s: %.1f percent at first, %.1f at last", p.id, 100*first, 100*last)
					}
				}
			})
		}
	}
}
