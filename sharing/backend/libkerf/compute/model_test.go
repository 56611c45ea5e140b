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

	batch int           // launches left before it waits.
	ready time.Duration // when it launches again.

	balance, charged, used, reported time.Duration
	queue                            []time.Duration // what is left of each kernel in flight.
	launchedAt                       []time.Duration // when each was launched.

	measures *estimate // charges what it measures; nil: by bias.
	turn     LaunchState
	launched uint64
	occupied time.Duration
}

// estimate is what libkerf learns of the only kind of launch of a worker. It is the shortest of the last two windows of
// measurements, or the shortest that was measured alone.
type estimate struct {
	lowest, before, alone time.Duration
	seen                  int
	began                 time.Duration // of the kernel that runs; 0: none has begun.
	aloneBegan            bool
	first                 int  // kernels that were launched in this turn alone.
	measured              bool // one was measured in it.
	count                 int
	weight                time.Duration // how many launches a measurement stands for.
}

const (
	window       = 32
	measureEvery = 32
	// firstLaunches need no budget in a turn alone.
	firstLaunches = 3
)

// isMeasured reports whether this launch is measured: the first ones, all long ones, and every so many of the others.
func (e *estimate) isMeasured(kernel time.Duration) bool {
	e.count++
	e.weight = 1
	if e.count <= 4 || kernel >= longLaunch {
		return true
	}
	e.weight = measureEvery
	return e.count%measureEvery == 0
}

// learn takes in a measurement.
func (e *estimate) learn(d time.Duration, alone bool) {
	if e.lowest == 0 || d < e.lowest {
		e.lowest = d
	}
	if alone && (!e.measured || d < e.alone) {
		e.alone, e.measured = d, true
	}
	if e.seen++; e.seen >= window {
		e.before, e.lowest, e.seen = e.lowest, 0, 0
	}
}

// best is the estimate; a first guess where nothing was measured.
func (e *estimate) best() time.Duration {
	out := time.Duration(0)
	for _, d := range []time.Duration{e.lowest, e.before, e.alone} {
		if d > 0 && (out == 0 || d < out) {
			out = d
		}
	}
	return max(out, tick)
}

// charge is what a launch is charged.
func (w *worker) charge() time.Duration {
	if w.measures != nil {
		return w.measures.best()
	}
	return w.kernel * time.Duration(w.bias) / 100
}

// mayLaunch reports whether the budget or the turn lets a launch happen.
func (w *worker) mayLaunch() bool {
	first := w.turn == Alone && w.measures != nil && w.measures.first < firstLaunches
	return w.turn != Paused && (w.balance > 0 || first)
}

// launch queues a kernel.
func (w *worker) launch(now time.Duration) {
	charge := w.charge()
	w.balance, w.charged, w.launched = w.balance-charge, w.charged+charge, w.launched+1
	w.queue, w.launchedAt = append(w.queue, w.kernel), append(w.launchedAt, now)
	if w.measures != nil && w.turn == Alone {
		w.measures.first++
	}
}

// work lets the worker's first kernel run for a tick, which began now if it had not begun before.
func (w *worker) work(now time.Duration) (done bool) {
	e := w.measures
	if e != nil && w.queue[0] == w.kernel {
		e.began, e.aloneBegan = now, w.turn == Alone
	}
	w.queue[0] -= tick
	w.used, w.reported = w.used+tick, w.reported+tick
	if w.queue[0] > 0 {
		return false
	}
	if e != nil && e.isMeasured(w.kernel) {
		w.occupied += e.weight * (now + tick - w.launchedAt[0])
		e.learn(now+tick-e.began, e.aloneBegan && w.turn == Alone)
	}
	w.queue, w.launchedAt = w.queue[1:], w.launchedAt[1:]
	return true
}

// seen is what the controller sees of the worker, and take gives it what it answers.
func (w *worker) seen() Seen {
	s := Seen{Balance: w.balance, Charged: w.charged, Launches: w.launched, Occupied: w.occupied}
	w.charged, w.launched, w.occupied = 0, 0, 0
	return s
}

func (w *worker) take(r TokenUpdate) {
	w.balance += r.Add
	if w.measures != nil && r.Launch != Alone {
		w.measures.first, w.measures.measured = 0, false
	}
	w.turn = r.Launch
}

// gpu runs kernels, one at a time: in the order of workers, each for a slice at most.
type gpu struct {
	workers []*worker
	slice   time.Duration // 0: to the kernel's end.
	now     time.Duration
	turn    int
	ran     time.Duration
	over    bool // a kernel has ended.
	// change is how long it takes to change from one worker to another, and busy until when it does.
	change, busy time.Duration
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
		for w.mayLaunch() && w.wants(g.now) && w.launches(g.now) {
			w.launch(g.now)
		}
	}
	n := len(g.workers)
	if w := g.workers[g.turn]; len(w.queue) == 0 || g.over || g.slice > 0 && g.ran >= g.slice {
		for k := 1; k <= n; k++ {
			if next := (g.turn + k) % n; len(g.workers[next].queue) > 0 {
				if next != g.turn%n {
					g.busy = g.now + g.change
				}
				g.turn = next
				break
			}
		}
		g.ran, g.over = 0, false
	}
	if w := g.workers[g.turn]; len(w.queue) > 0 && g.now >= g.busy {
		g.ran += tick
		if w.work(g.now) {
			g.over = true // the next one's turn
		}
	}
	g.now += tick
}

// run moves the model for d, with a controller, and calls after each of its steps what is given.
func (g *gpu) run(c *Controller, mode Mode, d time.Duration, each func(refills []TokenUpdate)) {
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
			busy += w.reported
		}
		for _, w := range g.workers {
			s := w.seen()
			if g.now%(10*period) == 0 { // the driver tells less often
				s.Requested, s.Sampled, w.reported = true, Sampled{Window: 10 * period, Busy: busy, Used: w.reported}, 0
			}
			seen[w.grant.ID] = s
		}
		refills := c.Step(mode, period, grants, seen)
		for i, r := range refills {
			g.workers[i].take(r)
		}
		if each != nil {
			each(refills)
		}
	}
}

func always(time.Duration) bool { return true }

func never(time.Duration) bool { return false }
