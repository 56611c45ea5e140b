// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

// slowProbes in a row with the hardware slowed down count.
const slowProbes = 30

// readings are what was told last of the sensors.
type readings struct {
	errors, links           Count
	mostLinks               uint64
	pending, failed         bool
	overheated, powerBraked int
}

// take takes the sensors and returns what is wrong now.
func (r *readings) take(s Sensors) (bad []cause) {
	if s.Uncorrected.Known {
		if r.errors.Known && s.Uncorrected.N > r.errors.N {
			bad = append(bad, causeErrors)
		}
		r.errors = s.Uncorrected
	}
	if s.Links.Known {
		r.links, r.mostLinks = s.Links, max(r.mostLinks, s.Links.N)
	}
	note := func(c cause, is bool) {
		if is {
			bad = append(bad, c)
		}
	}
	note(causeLinks, r.links.N < r.mostLinks)
	note(causeRemapPending, hold(&r.pending, s.RemapPending))
	note(causeRemapFailed, hold(&r.failed, s.RemapFailed))
	note(causeOverheat, row(&r.overheated, s.Overheat) >= slowProbes)
	note(causePowerBrake, row(&r.powerBraked, s.PowerBrake) >= slowProbes)
	return bad
}

// hold keeps what a flag said last.
func hold(last *bool, f Flag) bool {
	if f != Untold {
		*last = f == Yes
	}
	return *last
}

// row counts how often in a row a flag was set.
func row(n *int, f Flag) int {
	switch f {
	case Yes:
		*n = min(*n+1, slowProbes)
	case No:
		*n = 0
	case Untold:
	}
	return *n
}
