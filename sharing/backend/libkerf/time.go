// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// pastAfter is for how many seconds in a row the driver must see more than an attachment's share before the share
// counts as not enforced. A program's first launches are charged once their time is known.
const pastAfter = 5

// Time is what is known of an attachment's use of one GPU's time. Its programs can write all but Percent.
type Time struct {
	// Percent is the part of the last sharing.TimeRing that it used, as far as the driver's samples show. It is -1 if
	// they are too few or do not include it.
	Percent int
	// Charged is what its programs were charged in all for so many Launches, and worth as far as the driver's samples
	// tell.
	Charged  time.Duration
	Launches uint64
	// Past is how many of these ran on without a budget: no agent refilled it for two seconds, or a copy waited for
	// one.
	Past uint64
	// Waited is how long its launches waited for a budget, summed over threads.
	Waited time.Duration
}

// TimeOf is what is known of the use of time of a grant whose programs run, with one entry for each share of p. It says
// why nothing holds the grant to its percent, if so; then there may be no entries.
func (b *Backend) TimeOf(id string, p sharing.Placement) (times []Time, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.of(id)
	if g == nil || g.lost != "" {
		return nil, "the counters of its programs are not whole: " + g.why()
	}
	times, counted := g.times(p)
	switch {
	case !counted:
		return nil, "no grant on its GPU has a compute percent"
	case len(g.uncounted) > 0:
		return times, uncountedTime(len(g.uncounted))
	}
	for _, t := range g.reported {
		if t.past >= pastAfter {
			why = fmt.Sprintf(
				"by the driver's samples it uses more of GPU %s than its share: %d percent of the last %s", t.gpu,
				t.percent, sharing.TimeRing)
		}
	}
	return times, why
}

// uncountedTime says that processes do not take their turns.
func uncountedTime(n int) string {
	if n == 1 {
		return "a process uses the GPU without the preloaded library, and waits for no budget"
	}
	return "processes use the GPU without the preloaded library, and wait for no budget"
}

// times reads what the programs have counted; counted is false if they count nothing. The caller holds the backend's
// lock, which guards the driver's report.
func (g *region) times(p sharing.Placement) (out []Time, counted bool) {
	var budgets []libkerf.TokenBucket
	_ = g.use(func(open *libkerf.UsageFile) (err error) { // one that is spoilt is found by the upkeep
		budgets, err = open.Budgets()
		return err
	})
	out = make([]Time, len(p))
	for i, f := range p {
		out[i].Percent = -1
		for _, t := range g.reported {
			if t.gpu == f.GPU {
				out[i].Percent = t.percent
			}
		}
		for _, b := range budgets {
			if b.GPU == f.GPU {
				counted = counted || b.Percent > 0
				out[i].Charged, out[i].Launches, out[i].Past, out[i].Waited = max(0, b.Ran), b.Launches, b.Past,
					max(0, b.Waited)
			}
		}
	}
	return out, counted
}
