// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Track is what was told of one grant on one GPU, or on one MIG instance of it, at moments that are equally far apart.
type Track struct {
	GPU, Model string
	// Labels are by name: see Keys.
	Labels map[string]string
	Points []Point
}

// Point is one moment. It stands for the time since the one before.
type Point struct {
	// Share is the part of the GPU that it was granted, from 0 to 1, and Granted the memory. A point without a share is left
	// out: nothing was granted then.
	Share   float64
	Granted sharing.Bytes
	// Busy is the part of the GPU's time that it used, from 0 to 1, and Watts its part of what the GPU took; each only where
	// it is known.
	Busy, Watts           float64
	BusyKnown, WattsKnown bool
	// Used is the memory that it held, where that is known.
	Used      sharing.Bytes
	UsedKnown bool
}

// Part adds the points of a track up, each of which stands for step. Share and memory of the record are means over the
// time in which it was granted. ok is false where there is no such time.
func (t Track) Part(step time.Duration) (p Part, ok bool) {
	r := Record{GPU: t.GPU, Model: t.Model, Memory: Histogram{}, Compute: Histogram{}}
	seconds := step.Seconds()
	var share, granted float64
	for _, at := range t.Points {
		if !(at.Share > 0) || math.IsInf(at.Share, 0) { // not a number is no share either
			continue
		}
		r.Seconds += seconds
		share += at.Share * seconds
		granted += float64(at.Granted) * seconds
		if at.BusyKnown {
			r.Known += seconds
			r.Busy += at.Busy * seconds
			r.Compute.add(100*at.Busy, seconds)
			if at.Busy == 0 {
				r.Idle += seconds
			}
		}
		if at.UsedKnown && at.Granted > 0 {
			r.Memory.add(100*float64(at.Used)/float64(at.Granted), seconds)
		}
		if at.WattsKnown {
			r.Powered += seconds
			r.Joules += at.Watts * seconds
		}
	}
	if r.Seconds == 0 {
		return Part{}, false
	}
	r.Share, r.GrantedBytes = min(share/r.Seconds, 1), uint64(granted/r.Seconds)
	return Part{Record: r, Labels: t.Labels}, true
}
