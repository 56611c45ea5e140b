// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// histogram is one of the agent's, as its metrics show it: how many values were at most so large. The last bound
// is infinite.
type histogram []bucket

type bucket struct {
	bound float64 // seconds
	count uint64  // of values up to bound, smaller ones included
}

// histogramOf reads one out of an exposition.
func histogramOf(text, name string) (histogram, error) {
	var h histogram
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+`_bucket{le="`)
		if !ok {
			continue
		}
		bound, count, _ := strings.Cut(strings.TrimSpace(rest), `"} `)
		b, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		n, err := strconv.ParseUint(count, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		h = append(h, bucket{b, n})
	}
	if len(h) == 0 {
		return nil, fmt.Errorf("there is no histogram %s", name)
	}
	return h, nil
}

// since is what was added to before.
func (h histogram) since(before histogram) histogram {
	out := slices.Clone(h)
	for i := range out {
		out[i].count -= before[i].count
	}
	return out
}

func (h histogram) count() uint64 { return h[len(h)-1].count }

// quantile is the value that the part q of all is at most, on a straight line within its bucket. A value past the
// last finite bound counts as that bound.
func (h histogram) quantile(q float64) time.Duration {
	rank := q * float64(h.count())
	low, below := 0.0, 0.0
	for _, b := range h {
		if n := float64(b.count); n >= rank && n > below {
			if math.IsInf(b.bound, 1) {
				break
			}
			return seconds(low + (b.bound-low)*(rank-below)/(n-below))
		}
		if !math.IsInf(b.bound, 1) {
			low, below = b.bound, float64(b.count)
		}
	}
	return seconds(low)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestHistogramQuantiles(t *testing.T) {
	t.Parallel()
	text := "# TYPE x histogram\n" +
		"x_bucket{le=\"0.001\"} 10\nx_bucket{le=\"0.002\"} 100\nx_bucket{le=\"0.004\"} 110\nx_bucket{le=\"+Inf\"} " +
		"111\nx_sum 1\nx_count 111\n" +
		"xy_bucket{le=\"0.001\"} 7\n"
	now, err := histogramOf(text, "x")
	if err != nil {
		t.Fatal(err)
	}
	h := now.since(histogram{{0.001, 10}, {0.002, 10}, {0.004, 10}, {math.Inf(1), 11}})
	if h.count() != 100 {
		t.Fatalf("count %d of %v", h.count(), h)
	}
	for q, want := range map[float64]time.Duration{
		0.45: 1500 * time.Microsecond, 0.9: 2 * time.Millisecond, 0.95: 3 * time.Millisecond, 1: 4 * time.Millisecond,
	} {
		if got := h.quantile(q); (got - want).Abs() > time.Microsecond {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := now.quantile(1); got != 4*time.Millisecond {
		t.Errorf("past the last bound: %v", got)
	}
	if _, err := histogramOf(text, "z"); err == nil {
		t.Error("there is no histogram z")
	}
}
