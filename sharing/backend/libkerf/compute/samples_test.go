// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const sec = time.Second

// answer is a driver's answer for one grant, in percent of a second.
func answer(used, busy int) Sampled {
	return Sampled{Window: sec, Busy: sec * time.Duration(busy) / 100, Used: sec * time.Duration(used) / 100}
}

func TestSharesAreKnownWithinTheirError(t *testing.T) {
	for name, tt := range map[string]struct {
		answers  int
		reported Sampled
		charged  time.Duration
		percent  float64
		known    bool
	}{
		"a second is too few samples":       {1, answer(10, 100), 0, 10, false},
		"five are enough for a tenth":       {5, answer(10, 100), 0, 10, true},
		"but not for a half":                {5, answer(50, 100), 0, 50, false},
		"ten are":                           {10, answer(50, 100), 0, 50, true},
		"older ones are forgotten":          {100, answer(50, 100), 0, 50, true},
		"nothing is used by who is idle":    {10, answer(0, 100), 0, 0, true},
		"and by who is charged a little":    {10, answer(0, 100), sec / 10, 0, true},
		"without a report it is not idle":   {10, answer(0, 100), sec / 2, 0, false},
		"rows that are in doubt do not say": {10, Sampled{Window: sec, Busy: sec, Used: sec, Doubt: true}, 0, 0, false},
		"no answer":                         {0, Sampled{}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s Samples
			at := time.Unix(1000, 0)
			for range tt.answers {
				at = at.Add(sec)
				s.Add(at, map[ID]Sampled{"a": tt.reported}, map[ID]time.Duration{"a": tt.charged})
			}
			got, known := s.Share("a")
			if known != tt.known || known && math.Abs(got.Percent-tt.percent) > 0.01 || known && got.Error > mostError {
				t.Errorf("%+v, %v; want %v, %v", got, known, tt.percent, tt.known)
			}
			if _, known = s.Share("b"); known {
				t.Error("a grant is known that was not requested")
			}
			if s.Forget(at.Add(sharing.TimeRing)); len(s.answers) > 0 {
				t.Errorf("%d answers are kept", len(s.answers))
			}
		})
	}
}

// Of many runs of ten seconds the truth is within two standard errors in 19 of 20, and above Least in practically all.
func TestErrorsOfSharesAreTrue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, part := range []float64{0.02, 0.1, 0.5, 0.9, 1} {
		const runs = 2000
		within, above := 0, 0
		for range runs {
			var s Samples
			for i := range 10 {
				used := sec * time.Duration(binomial(r, 7, part)) / 7
				s.Add(time.Unix(int64(i), 0), map[ID]Sampled{"a": {Window: sec, Busy: sec, Used: used}}, nil)
			}
			share, _ := s.Share("a")
			if math.Abs(share.Percent-100*part) <= 2*share.Error+0.5 {
				within++
			}
			if share.Least <= 100*part {
				above++
			}
		}
		if within < runs*92/100 || above < runs-1 {
			t.Errorf("part %v: %d of %d within two standard errors, %d above the least", part, within, runs, above)
		}
	}
}

func binomial(r *rand.Rand, n int, p float64) (k int) {
	for range n {
		if r.Float64() < p {
			k++
		}
	}
	return k
}
