// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"time"
)

// tick is the model's unit, period the controller's.
const (
	tick   = 100 * time.Microsecond
	period = 20 * time.Millisecond
)

// worker is a program that launches kernels of one length whenever it wants to, has budget, and has fewer than
// depth in flight. What it runs is charged at the launch, wrong by bias percent. One that waits launches depth kernels,
// waits for the end of all of them, is late by lag, and launches again.
type worker struct {
	grant  Grant
	kernel time.Duration
	depth  int
	bias   int
	wants  func(now time.Duration) bool
	waits  bool
	lag    time.Duration

	batch int           // launches left before it waits
	ready time.Duration // when it launches again

	balance, charged, used, told time.Duration
	queue                        []time.Duration // what is left of each kernel in flight
}

// gpu runs kernels, one at a time: in the order of workers, each for a slice at most.
type gpu struct {
	workers []*worker
	slice   time.Duration // 0: to the kernel's end
	now     time.Duration
	turn    int
	ran     time.Duration
}

// launches reports whether a kernel may be launched now, as far as those before it are concerned.
func (w *worker) launches(now time.Duration) bool {
	switch {
	case !w.waits:
		return len(w.queue) < w.depth
	case len(w.queue) > 0 && w.batch == 0:
		w.ready = now + w.lag + tick // if it is the last one that runs
		return false
	case w.batch == 0 && now < w.ready:
		return false
	case w.batch == 0:
		w.batch = w.depth
	}
	w.batch--
	return true
}

// step moves the model by a tick.
func (g *gpu) step() {
	for _, w := range g.workers {
		for w.balance > 0 && w.wants(g.now) && w.launches(g.now) {
			charge := w.kernel * time.Duration(w.bias) / 100
			w.balance, w.charged = w.balance-charge, w.charged+charge
			w.queue = append(w.queue, w.kernel)
		}
	}
	n := len(g.workers)
	if w := g.workers[g.turn]; len(w.queue) == 0 || g.slice > 0 && g.ran >= g.slice {
		for k := 1; k <= n; k++ {
			if next := (g.turn + k) % n; len(g.workers[next].queue) > 0 {
				g.turn = next
				break
			}
		}
		g.ran = 0
	}
	if w := g.workers[g.turn]; len(w.queue) > 0 {
		w.queue[0] -= tick
		w.used, w.told = w.used+tick, w.told+tick
		g.ran += tick
		if w.queue[0] <= 0 {
			w.queue = w.queue[1:]
			g.ran = max(g.ran, g.slice) // the next one's turn
		}
	}
	g.now += tick
}

// run moves the model for d, with a controller, and calls after each of its steps what is given.
func (g *gpu) run(c *Controller, mode Mode, d time.Duration, each func(refills []Refill)) {
	var grants []Grant
	for _, w := range g.workers {
		grants = append(grants, w.grant)
	}
	for end := g.now + d; g.now < end; {
		g.step()
		if g.now%period != 0 {
			continue
		}
		seen := map[ID]Seen{}
		var busy time.Duration
		for _, w := range g.workers {
			busy += w.told
		}
		for _, w := range g.workers {
			s := Seen{Balance: w.balance, Charged: w.charged}
			if g.now%(10*period) == 0 { // the driver tells less often
				s.Asked, s.Told, w.told = true, Told{Window: 10 * period, Busy: busy, Used: w.told}, 0
			}
			w.charged = 0
			seen[w.grant.ID] = s
		}
		refills := c.Step(mode, period, grants, seen)
		for i, r := range refills {
			g.workers[i].balance += r.Add
		}
		if each != nil {
			each(refills)
		}
	}
}

func always(time.Duration) bool { return true }

func never(time.Duration) bool { return false }
