// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// TestUpkeepOfEndedProcesses ends a trainer that counts its memory, while a worker keeps that memory. What the driver
// reports counts against the cap, also with an agent that starts later, until no process keeps it.
func TestUpkeepOfEndedProcesses(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	g.worker(a)
	second := g.worker(a)
	g.counts(a, 0, p, 2*sharing.GiB)
	g.counts(a, 1, second, sharing.GiB/2)
	held := []gpudriver.ProcessUse{{PID: p.PID, Used: 5 * sharing.GiB / 2, Known: true},
		{PID: second.PID, Used: sharing.GiB, Known: true}}
	g.holds(held...)
	check := func(when string, used, overhead sharing.Bytes) {
		t.Helper()
		for range 2 {
			g.bench.upkeep(t.Context())
			if u := g.usage(a); u.Used != used || u.Overhead != overhead {
				t.Errorf("%s: %+v, want %s used and %s overhead", when, u, used, overhead)
			}
		}
	}
	check("while it runs", 5*sharing.GiB/2, sharing.GiB)
	g.dies(p)
	check("after its end", sharing.GiB/2, 3*sharing.GiB)
	g.driver.silent = map[sharing.GPURef]bool{g.gpus[0].Ref(): true}
	check("while the driver does not answer", sharing.GiB/2, 3*sharing.GiB)
	g.restartPreloading()
	check("while it does not answer to a new agent", sharing.GiB/2, 3*sharing.GiB)
	g.driver.silent = nil
	check("when it answers to a new agent", sharing.GiB/2, 3*sharing.GiB)
	g.holds(held[1])
	check("when no one keeps it", sharing.GiB/2, sharing.GiB/2)
	if g.seen.uncounted != 0 {
		t.Errorf("%d processes are said not to count", g.seen.uncounted)
	}
}

// TestUpkeepKeepsWhatMayBeKept has a trainer end while the driver returns no lists. Its counter stays as long as a
// process that counts nothing may have its files.
func TestUpkeepKeepsWhatMayBeKept(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	worker := g.worker(a)
	second := g.worker(a)
	g.counts(a, 0, p, 2*sharing.GiB)
	g.counts(a, 1, second, sharing.GiB)
	g.holds(gibs(p, 3), gibs(second, 1))
	g.bench.upkeep(t.Context())
	g.driver.silent = map[sharing.GPURef]bool{g.gpus[0].Ref(): true}
	p.end()
	check := func(when string, want sharing.Bytes) {
		t.Helper()
		g.bench.upkeep(t.Context())
		if u := g.usage(a); u.Used != want {
			t.Errorf("%s: %+v, want %s used", when, u, want)
		}
	}
	check("the worker has the files", 3*sharing.GiB)
	g.kernel.set(g.kernel.unread, worker.PID, true)
	check("it cannot be read", 3*sharing.GiB)
	g.kernel.set(g.kernel.unread, worker.PID, false)
	g.kernel.set(g.kernel.closed, worker.PID, true)
	check("only one that counts has them", sharing.GiB)
}

// TestUpkeepOfOneThatClosedItsFiles has a process close its files, whose counter then stands for what a worker keeps.
func TestUpkeepOfOneThatClosedItsFiles(t *testing.T) {
	g := newPreloaded(t, both)
	p, a := g.share(4)
	g.worker(a)
	g.counts(a, 0, p, sharing.GiB)
	g.holds(gibs(p, 2))
	g.bench.upkeep(t.Context())
	g.kernel.set(g.kernel.closed, p.PID, true)
	if err := g.bench.sampler.Lists.Check(g.gpus[0].Ref(), processOf(p)); err == nil {
		t.Error("it may be signaled")
	}
	for range 3 {
		g.bench.upkeep(t.Context())
		if u := g.usage(a); u.Used != sharing.GiB || u.Overhead != sharing.GiB {
			t.Errorf("%+v", u)
		}
	}
}

// TestUpkeepOfEndedProcessesWithManagedMemory has a trainer end that has managed memory, which the driver lists with no
// process: its counter alone tells of that.
func TestUpkeepOfEndedProcessesWithManagedMemory(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) {
			g := newPreloaded(t, preloading)
			p, a := g.share(8)
			g.worker(a)
			g.counts(a, 0, p, 3*sharing.GiB)
			g.managedOf(a, 0, 2*sharing.GiB)
			g.holds(gibs(p, 2))
			g.bench.upkeep(t.Context())
			if u := g.usage(a); u.Used != 3*sharing.GiB || u.Overhead != sharing.GiB {
				t.Errorf("while it runs: %+v", u)
			}
			g.dies(p)
			overhead := sharing.GiB
			if restarted {
				g.restartPreloading()
				// it is not known whose counter it is, and more counts twice rather than less
				overhead = 2 * sharing.GiB
			}
			for range 2 {
				g.bench.upkeep(t.Context())
				if u := g.usage(a); u.Used != 3*sharing.GiB || u.Overhead != overhead {
					t.Errorf("after its end: %+v", u)
				}
			}
			g.holds()
			g.bench.upkeep(t.Context())
			g.bench.upkeep(t.Context())
			if u := g.usage(a); u.Used != 0 || u.Overhead != 0 {
				t.Errorf("when no process keeps it: %+v", u)
			}
		})
	}
}
