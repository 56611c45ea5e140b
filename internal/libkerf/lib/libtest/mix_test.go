// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"flag"
	"fmt"
	"sync"
	"testing"
)

var mixes = flag.Int("mixes", 3, "how many orders of allocations to try")

// Processes of many threads allocate in every way at once, under one cap. Some are killed in the middle, and others
// come after them. The driver never gives more than the cap, and nothing stays counted.
func TestEveryWayAtOnce(t *testing.T) {
	const processes, threads, steps, limit = 5, 12, 60, 700 * mib
	for seed := 1; seed <= *mixes; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			n := start(t, "h200x8", "r580")
			context := n.contextOf(t)
			b := n.cap(t, limit)
			n.countPeak(t)
			var wg sync.WaitGroup
			results := make([]string, processes)
			for i := range processes {
				wg.Go(func() { results[i] = b.mixes(t, seed*100+i*10, threads, steps, i%2 == 0) })
			}
			wg.Wait()
			checkMix(t, results)
			most := n.peak(t)
			if most > limit+processes*context || most < limit/2 {
				t.Errorf("the driver gave %d at a time, of which %d contexts have %d each, and the cap is %d", most,
					processes, context, limit)
			}
			b.reclaim(t)
			if used := b.used(); used != 0 {
				t.Errorf("%d bytes are left", used)
			}
			if got := b.check(t, "gpu:0", "fill:linear:73400320"); got != "10" {
				t.Errorf("afterwards %s blocks fit, want 10", got)
			}
		})
	}
}

// mixes runs three programs one after another, of which those that are to die kill themselves. It returns what the last
// says.
func (b box) mixes(t *testing.T, seed, threads, steps int, dies bool) (said string) {
	t.Helper()
	for round := range 3 {
		until := 0
		if dies && round < 2 {
			until = threads * steps / (2 + round)
		}
		code, out, errout := b.ended(t, nil, "check/kerfcheck", "gpu:0", fmt.Sprintf("mix:%d:%d:%d:%d", threads, steps,
			seed+round, until))
		if killed := code == -1; killed != (until > 0) || errout != "" {
			t.Errorf("seed %d: exit %d, %q %q", seed+round, code, out, errout)
		}
		said = out
	}
	return said
}

// checkMix checks that there was something to count, and something to refuse. One process may find nothing free, if
// others hold all while it runs.
func checkMix(t *testing.T, results []string) {
	t.Helper()
	allServed, allRefused := 0, 0
	for _, r := range results {
		var served, refused int
		if _, err := fmt.Sscanf(r, "%d %d", &served, &refused); err != nil || served+refused == 0 {
			t.Errorf("%q: %v", r, err)
		}
		allServed, allRefused = allServed+served, allRefused+refused
	}
	if allServed == 0 || allRefused == 0 {
		t.Errorf("%d were served and %d refused: %q", allServed, allRefused, results)
	}
}
