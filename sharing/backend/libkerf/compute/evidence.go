// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"math"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// memory is about how long answers of a driver count.
	memory = 256 * time.Second
	// certainty is how many standard errors away from what samples tell a rate has to be before it is corrected. They
	// are looked at every second, for as long as a grant lasts: at three, chance alone would correct some.
	certainty = 4
	// least is how much time samples must cover before anything follows. The part of a correction that each answer
	// makes is gain: chance does not last.
	least = sharing.TimeRing
	gain  = 1.0 / 8
	// silence is the most that a grant is charged without a sample before that has no meaning any more. Of sixteen
	// samples none would be its own once in nine million times.
	silence = 16 * sharing.TimeSample
	// The bounds of a rate. What a program spoils gains it no more.
	leastRate, mostRate = 1.0 / 8, 8.0
)

// Sampled is what a driver's samples of some time show of one grant.
type Sampled struct {
	// Window is that time, Busy what was used of it by anybody, and Used by the grant; 0: it was in no sample.
	Window, Busy, Used time.Duration
	// Doubt: the samples of the grant were unusable. It may have been in no sample.
	Doubt bool
}

// sums are of several answers of a driver, in seconds, older ones counting less.
type sums struct{ window, busy, used, charged float64 }

func (s sums) plus(o sums) sums {
	return sums{s.window + o.window, s.busy + o.busy, s.used + o.used, s.charged + o.charged}
}

func (s sums) times(f float64) sums {
	return sums{s.window * f, s.busy * f, s.used * f, s.charged * f}
}

// evidence is what a driver's samples tell of how much GPU time a grant uses for each second that it is charged: its
// rate. The smaller its share is, the longer they take to tell it; until then what they seem to say is noise, and
// changes nothing. The zero value is ready.
type evidence struct {
	sure, doubt sums
	open        sums // since the grant was in a sample
}

// add takes in an answer, and what was charged over the same time.
func (e *evidence) add(charged time.Duration, t Sampled) {
	now := sums{t.Window.Seconds(), t.Busy.Seconds(), t.Used.Seconds(), charged.Seconds()}
	switch {
	case t.Doubt:
		now.used = 0
		e.doubt = e.doubt.plus(now)
	case t.Used > 0:
		run := e.open.plus(now)
		keep := math.Exp(-run.window / memory.Seconds())
		e.sure, e.doubt, e.open = e.sure.times(keep).plus(run), e.doubt.times(keep), sums{}
	default:
		if e.open = e.open.plus(now); e.open.charged > silence.Seconds() {
			e.open = sums{} // the driver does not tell of it
		}
	}
}

// correct moves a rate towards what the samples tell, almost certainly, and no further.
func (e *evidence) correct(rate float64) float64 {
	all := e.sure.plus(e.doubt)
	if e.sure.charged <= 0 || e.sure.window < least.Seconds() {
		return rate
	}
	low, _ := all.part()
	_, high := e.sure.part()
	low, high = low*all.window/all.charged, high*e.sure.window/e.sure.charged
	if low > high {
		return rate
	}
	rate += gain * (max(low, min(rate, high)) - rate)
	return max(leastRate, min(rate, mostRate))
}

// part is between which parts of the time the grant used the GPU, almost certainly. A sample has the one process that
// was on the engine when it was taken, or else one that was on it earlier. So the grant may have used less than its
// part of the samples, by as much as the GPU was idle. It used no more than the GPU was busy.
func (s sums) part() (low, high float64) {
	busy := min(s.busy/s.window, 1)
	low, high = wilson(min(s.used/s.busy, 1), s.window/sharing.TimeSample.Seconds())
	return max(0, low-(1-busy)), min(high, busy)
}

// wilson is the interval of E. B. Wilson (1927) for a part that was seen in so many samples.
func wilson(part, samples float64) (low, high float64) {
	const z = certainty
	middle := part + z*z/(2*samples)
	off := z * math.Sqrt(part*(1-part)/samples+z*z/(4*samples*samples))
	all := 1 + z*z/samples
	return max(0, (middle-off)/all), min(1, (middle+off)/all)
}
