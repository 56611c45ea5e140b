// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"math"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// mostError is the largest standard error, in points of percent, of a known share of time. It is that of half of a GPU
// in all the samples that a driver keeps.
const mostError = 6

// mostDoubt is how much time may be in doubt for each second that is not. Only time in which a grant was in a sample is
// ever in doubt, so the rest says too little of it.
const mostDoubt = 0.2

// Samples is what a driver's samples of the last sharing.TimeRing tell of the grants on one GPU. The zero value is
// ready.
type Samples struct{ answers []sampled }

type sampled struct {
	at       time.Time
	reported map[ID]Sampled
	charged  map[ID]time.Duration
}

// Add takes in what a driver tells, and what was charged over the same time. A grant that is missing was not asked for.
func (s *Samples) Add(at time.Time, reported map[ID]Sampled, charged map[ID]time.Duration) {
	s.answers = append(s.answers, sampled{at, reported, charged})
	s.Forget(at)
}

// Forget drops what is older than the driver's samples go back.
func (s *Samples) Forget(now time.Time) {
	s.answers = slices.DeleteFunc(s.answers, func(a sampled) bool { return !a.at.After(now.Add(-sharing.TimeRing)) })
}

// Share is what part of a GPU's time a grant has used.
type Share struct {
	Percent float64
	// Error is its standard error, in points of percent.
	Error float64
	// Least is what it used at least, almost certainly.
	Least float64
}

// Share is what the grant used in these seconds. It is not known where there are too few samples, and where the driver
// tells nothing of a grant that was charged for much.
func (s *Samples) Share(id ID) (_ Share, known bool) {
	var all sums
	var doubt float64
	for _, a := range s.answers {
		switch t, asked := a.reported[id]; {
		case asked && t.Doubt:
			doubt += t.Window.Seconds()
		case asked:
			all = all.plus(sums{t.Window.Seconds(), t.Busy.Seconds(), t.Used.Seconds(), a.charged[id].Seconds()})
		}
	}
	if all.window == 0 || doubt > mostDoubt*all.window || all.used == 0 && all.charged > silence.Seconds() {
		return Share{}, false
	}
	n := all.window / sharing.TimeSample.Seconds()
	// As if two more samples had been taken, one of them the grant's: that none was its own is no certainty.
	p := (all.used/all.window*n + 1) / (n + 2)
	share := Share{Percent: hundred * all.used / all.window, Error: hundred * math.Sqrt(p*(1-p)/(n+2))}
	if all.used > 0 {
		least, _ := all.part()
		share.Least = hundred * least
	}
	return share, share.Error <= mostError
}
