// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"math"
	"slices"
)

// Quantile returns the value at a quantile from 0 to 1, without interpolation. It is 0 without values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// medianBetween returns the interval in which the median of a distribution is with 95% certainty, from a sample of it.
// A value is above the median as often as a coin shows heads. A sample of five or fewer tells nothing.
func medianBetween(sample []float64) (low, high float64) {
	const rest = 0.05
	n := len(sample)
	if n < 6 {
		return math.Inf(-1), math.Inf(1)
	}
	sorted := slices.Sorted(slices.Values(sample))
	k, tail, term := 0, 0.0, math.Pow(0.5, float64(n)) // term: the probability of exactly k heads
	for tail+2*term <= rest {
		tail += 2 * term
		term *= float64(n-k) / float64(k+1)
		k++
	}
	return sorted[k-1], sorted[n-k]
}

// Work is what one program of a comparison did.
type Work struct {
	Units   float64 `json:"units"`
	WallNS  float64 `json:"wall_ns"`
	Rounds  uint64  `json:"rounds"`
	P50     float64 `json:"p50_ns"`
	P99     float64 `json:"p99_ns"`
	Seconds []int   `json:"seconds"`
}

// Rate is in units per second. It is 0 if no time passed.
func (w Work) Rate() float64 {
	if w.WallNS == 0 {
		return 0
	}
	return w.Units / w.WallNS * 1e9
}

// Share is the part of the sum of two rates that the first has, 0 to 1. It is NaN if both are zero.
func Share(a, b Work) float64 { return a.Rate() / (a.Rate() + b.Rate()) }

// WorstSecond returns the largest difference, in percentage points, between the share of a in one whole second and the
// target. Seconds in which neither worked count in full.
func WorstSecond(a, b Work, target float64) float64 {
	worst := 0.0
	for i := range min(len(a.Seconds), len(b.Seconds)) {
		sum := a.Seconds[i] + b.Seconds[i]
		if sum == 0 {
			return 100
		}
		share := float64(a.Seconds[i]) / float64(sum)
		worst = max(worst, math.Abs(share-target)*100)
	}
	return worst
}

// SharesOf judges two programs that should share a GPU. The ratio is within a tenth of the target; no second differs by
// more than 5 points. Each program counts in units of the rate that it has alone, so programs of different kinds can be
// compared.
func SharesOf(claim, secondsClaim, what string, a, b Work, target float64) []Result {
	share := Share(a, b)
	ok := !math.IsNaN(share) && math.Abs(share-target) <= target*0.1
	worst := WorstSecond(a, b, target)
	return []Result{
		Is(claim, ok, "%s: %.1f%% of the work (target: %.1f%% ± 10%%)", what, share*100, target*100),
		AtMost(secondsClaim, what+", worst second", worst, 5, "points"),
	}
}

// Serving is what one way to share a GPU gave two programs that serve tokens.
type Serving struct {
	Backend string
	A, B    Work
}

// Total is the throughput of both programs in tokens per second.
func (s Serving) Total() float64 { return s.A.Rate() + s.B.Rate() }

// AtLeastShares judges two programs that may use idle time. Each reaches 90% of its part of the rate alone.
func AtLeastShares(claim, what string, w [2]Work, alone Work, first float64) []Result {
	var out []Result
	for i, part := range []float64{first, 1 - first} {
		got := w[i].Rate() / alone.Rate()
		out = append(out, Is(claim, got >= 0.9*part,
			"%s: program %d has %.1f%% of its rate alone (target: at least 90%% of %.0f%%)", what, i+1, got*100,
			part*100))
	}
	return out
}
