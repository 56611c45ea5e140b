// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// after is the rate after so many seconds in each of which the driver tells this and so much was charged.
func after(seconds int, charged time.Duration, tell func(second int) Sampled) float64 {
	var e evidence
	rate := 1.0
	for i := range seconds {
		e.add(charged, tell(i))
		rate = e.correct(rate)
	}
	return rate
}

func TestRateIsCorrectedAsFarAsSamplesTell(t *testing.T) {
	always := func(t Sampled) func(int) Sampled { return func(int) Sampled { return t } }
	for name, tt := range map[string]struct {
		seconds   int
		charged   time.Duration
		tell      func(int) Sampled
		low, high float64
	}{
		"what is right stays":                   {600, sec / 10, always(answer(10, 100)), 1, 1},
		"nine seconds say nothing":              {9, sec / 10, always(answer(90, 90)), 1, 1},
		"a large share soon":                    {60, sec * 45 / 100, always(answer(90, 100)), 1.75, 2},
		"charged too much":                      {60, sec, always(answer(50, 100)), 0.5, 0.75},
		"a small share later":                   {60, sec * 10 / 100, always(answer(20, 100)), 1, 1.3},
		"but surely":                            {1200, sec * 10 / 100, always(answer(20, 100)), 1.3, 2},
		"alone on an idle GPU":                  {120, sec * 40 / 100, always(answer(20, 20)), 0.5, 0.51},
		"half of the idle time could be others": {600, sec * 30 / 100, always(answer(20, 40)), 1, 1},
		"the driver does not tell of it":        {600, sec * 90 / 100, always(answer(0, 100)), 1, 1},
		"nothing is charged":                    {600, 0, always(answer(50, 100)), 1, 1},
		"nothing is charged, nor used":          {600, 0, always(answer(0, 0)), 1, 1},
		"a doubtful row could be none": {600, sec * 50 / 100, func(i int) Sampled {
			x := answer(50, 100)
			x.Doubt = i%2 == 0
			return x
		}, 1, 1},
		"or one like the others": {600, sec * 50 / 100, func(i int) Sampled {
			if i%2 == 0 {
				return Sampled{Window: sec, Busy: sec / 2, Doubt: true}
			}
			return answer(100, 100)
		}, 1, 2},
		"garbage is bounded":       {600, sec, always(answer(100_000, 100_000)), 1, 1},
		"and so is what it can do": {6000, sec / 1000, always(answer(100, 100)), mostRate * 0.99, mostRate},
	} {
		if got := after(tt.seconds, tt.charged, tt.tell); got < tt.low-1e-9 || got > tt.high+1e-9 || math.IsNaN(got) {
			t.Errorf("%s: rate %v, want %v to %v", name, got, tt.low, tt.high)
		}
	}
}

// What a program does now and did long ago is not the same: later answers outweigh earlier ones.
func TestRateFollows(t *testing.T) {
	got := after(1200, sec/2, func(second int) Sampled {
		if second < 300 {
			return answer(100, 100)
		}
		return answer(50, 100)
	})
	if got > 1.15 {
		t.Errorf("the rate is %v long after it is 1 again", got)
	}
}

// Chance alone corrects nothing: in an hour of samples that have the grant as often as it is charged, its rate stays.
func TestChanceIsNoEvidence(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, part := range []float64{0.02, 0.1, 0.5, 0.9} {
		for range 40 {
			charged := time.Duration(part * float64(sec))
			got := after(3600, charged, func(int) Sampled {
				return Sampled{Window: sec, Busy: sec, Used: sec * time.Duration(binomial(r, 7, part)) / 7}
			})
			if math.Abs(got-1) > 0.05 {
				t.Errorf("a grant that uses %v: rate %v", part, got)
			}
		}
	}
}
