// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// MostContext is more than any context takes: a program can make itself look as if one took more, and the others would put
// that much aside.
const MostContext = sharing.GiB

// contextReadings is how many readings of single contexts are kept.
const contextReadings = 9

// ContextSize is what is known of the size of one context on a GPU. Contexts there are of about one size, but a reading
// may be too small, where a program has reserved memory that the driver has not given yet (or never gives all at
// once, as managed memory), and too large, where it has loaded modules. So it is the median of the last readings, the
// smaller of two. The zero value knows nothing.
type ContextSize struct {
	readings []sharing.Bytes // the last at the end
	guess    sharing.Bytes
}

// Note takes over what a look says: readings of processes that have just made one context, and the least that any
// process was seen to take beside its count, which counts for as long as there is no such reading. 0 says nothing.
func (c *ContextSize) Note(readings []sharing.Bytes, least sharing.Bytes) {
	for _, n := range readings {
		c.readings = append(c.readings, min(n, MostContext))
	}
	if n := len(c.readings); n > contextReadings {
		c.readings = slices.Delete(c.readings, 0, n-contextReadings)
	}
	if least = min(least, MostContext); least > 0 && (c.guess == 0 || least < c.guess) {
		c.guess = least
	}
}

// Bytes is the size of a context; 0: not known.
func (c *ContextSize) Bytes() sharing.Bytes {
	if len(c.readings) == 0 {
		return c.guess
	}
	sorted := slices.Sorted(slices.Values(c.readings))
	return sorted[(len(sorted)-1)/2]
}
