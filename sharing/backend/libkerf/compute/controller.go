// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"slices"
	"time"
)

// Controller refills the budgets of one GPU. The zero value is ready. It is not safe for concurrent use.
type Controller struct {
	accounts map[ID]*account
	// idle is the time of a step in which the GPU ran nothing, over the last few.
	idle time.Duration
	// spare is how much time of grants that run something may go to others in a step.
	spare time.Duration
	// ahead is what was charged and cannot have run yet, by the time that has passed.
	ahead time.Duration
	alone alone
}

// crowded reports whether the grant uses less than its share because others keep the GPU busy: its launches follow each
// other without a pause.
func (a *account) crowded() bool { return a.occupied >= crowdedFrom }

// account is what is remembered of a grant between steps.
type account struct {
	charged time.Duration // since the driver last reported usage
	pending time.Duration // until what it was charged last can have run
	quiet   time.Duration // since it can have run
	launch  time.Duration // what a launch is charged, over the last ones
	// occupied is the part of the last time, from 0 to 1, in which a launch was pending. Reported pending time that is
	// not in it yet is backlog.
	occupied float64
	backlog  time.Duration

	measured measured
	evidence evidence
	rate     float64 // GPU time for each second that is charged
}

// Step refills the budgets after passed, which counts as MaxStep at most. Grants that are not named are forgotten.
// A grant without an entry in seen gets nothing: what its budget holds is not known. The answer is in the order of
// the grants.
func (c *Controller) Step(mode Mode, passed time.Duration, grants []Grant, seen map[ID]Seen) []TokenUpdate {
	passed = max(0, min(passed, MaxStep))
	c.forget(grants)
	out := make([]TokenUpdate, len(grants))
	rooms := make([]time.Duration, len(grants))
	free := passed            // the time that no share takes, or an idle grant's
	var running time.Duration // what others leave of their shares, who run something
	woke := false
	parts := shares(grants)
	ran := c.queue(passed, grants, seen)
	for i, g := range grants {
		share := parts[i]
		out[i].ID = g.ID
		free -= share.of(passed)
		s, known := seen[g.ID]
		if !known {
			continue // it may be using its own
		}
		a := c.account(g.ID)
		a.correct(s)
		s = a.real(s)
		out[i].Ran = s.Charged
		full := max(share.of(fullAfter), 1)
		own := max(0, min(share.of(passed), full-s.Balance))
		out[i].Add = own
		rooms[i] = max(full, lendSteps*passed) - s.Balance - out[i].Add
		if a.listen(s, passed, c.ahead, c.alone.id != "") {
			woke = true
		}
		switch {
		case a.quiet >= quietAfter:
			free += share.of(passed) - own
		case !a.crowded():
			running += share.of(passed) - own
		}
	}
	if c.alone.id == "" { // a GPU that waits for a measurement has no idle time
		c.adapt(passed, passed-ran, woke)
	}
	c.turns(passed, grants, seen, out)
	if mode == Fair {
		lend(out, rooms, grants, free+min(running, c.spare))
	}
	for i := range out {
		if a := c.accounts[out[i].ID]; a != nil {
			out[i].Add, out[i].Spare = a.charges(out[i].Add), a.charges(out[i].Spare)
		}
	}
	return out
}

// real is what was seen in GPU time, and charges is how much is to be charged for some GPU time.
func (a *account) real(s Seen) Seen {
	s.Balance, s.Charged = time.Duration(float64(s.Balance)*a.rate), time.Duration(float64(s.Charged)*a.rate)
	return s
}

func (a *account) charges(real time.Duration) time.Duration {
	return time.Duration(float64(real) / a.rate)
}

// adapt learns how much time of running grants may go to others. A full budget does not prove that its grant needs no
// more: it may wait for a GPU that others keep busy. So more goes to others while the GPU has idle time, and less as
// soon as it has none. Nothing goes to others once an owner has come back.
func (c *Controller) adapt(passed, idle time.Duration, woke bool) {
	c.idle = (3*c.idle + idle) / 4
	switch {
	case woke:
		c.spare = 0
	case c.idle > passed*idlePercent/hundred:
		c.spare = min(c.spare+c.idle/4, passed)
	default:
		c.spare = c.spare * 3 / 4
	}
}

// queue takes in what was charged, and returns for how much of the step the GPU ran. A program that launches much at
// once, and then waits for it, is charged nothing for as long, and is not idle.
func (c *Controller) queue(passed time.Duration, grants []Grant, seen map[ID]Seen) (ran time.Duration) {
	for _, g := range grants {
		c.ahead = min(c.ahead+c.account(g.ID).real(seen[g.ID]).Charged, maxAhead)
	}
	ran = min(passed, c.ahead)
	c.ahead -= ran
	return ran
}

// listen notes whether the grant runs anything, which may take ahead, and tells whether it has come back from a rest.
// One that was held is not at rest.
func (a *account) listen(s Seen, passed, ahead time.Duration, held bool) (woke bool) {
	rest := passed - a.pending // of the step, after what it ran
	a.pending = max(0, -rest)
	a.occupy(s.Occupied, passed)
	if s.Charged == 0 {
		if !held {
			a.quiet = min(a.quiet+max(0, rest), quietAfter)
		}
		return false
	}
	if s.Launches > 0 {
		a.launch = (3*a.launch + s.Charged/time.Duration(min(s.Launches, maxLaunches))) / 4
	}
	woke = a.quiet >= quietAfter
	a.quiet, a.pending = 0, ahead
	return woke
}

// occupy takes in for how long launches were pending. Reports are rare, and each is of many launches.
func (a *account) occupy(reported, passed time.Duration) {
	a.backlog = min(a.backlog+reported, mostReported)
	now := min(a.backlog, passed)
	a.backlog -= now
	a.occupied += (float64(now)/float64(max(passed, 1)) - a.occupied) *
		min(1, float64(passed)/float64(occupiedOver))
}

func (c *Controller) account(id ID) *account {
	if c.accounts[id] == nil {
		c.accounts[id] = &account{rate: 1}
	}
	return c.accounts[id]
}

// correct learns from what the driver tells what charges are worth.
func (a *account) correct(s Seen) {
	a.charged += s.Charged
	if !s.Requested {
		return
	}
	if s.Sampled.Window > 0 {
		a.evidence.add(a.charged, s.Sampled)
		a.rate = a.evidence.correct(a.rate)
	}
	a.charged = 0
}

// forget drops the accounts of grants that are gone.
func (c *Controller) forget(grants []Grant) {
	if c.accounts == nil {
		c.accounts = map[ID]*account{}
	}
	for id := range c.accounts {
		if !slices.ContainsFunc(grants, func(g Grant) bool { return g.ID == id }) {
			delete(c.accounts, id)
		}
	}
}

// share is a part of a GPU's time, in millionths.
type share int64

const whole share = 1_000_000

func (s share) of(d time.Duration) time.Duration {
	return time.Duration(int64(d) * int64(s) / int64(whole))
}

// shares are the grants' parts of the GPU, which are together at most all of it.
func shares(grants []Grant) []share {
	out := make([]share, len(grants))
	const percent = whole / hundred
	var sum share
	without := 0
	for i, g := range grants {
		out[i] = min(share(g.Percent)*percent, whole)
		sum += out[i]
		if out[i] == 0 {
			without++
		}
	}
	if without > 0 {
		part := max(percent, (whole-sum)/share(without))
		for i := range out {
			if out[i] == 0 {
				out[i] = part
				sum += part
			}
		}
	}
	for i := range out {
		if sum > whole {
			out[i] = out[i] * whole / sum
		}
	}
	return out
}

// lend gives what is left to those that have room, class by class.
func lend(out []TokenUpdate, rooms []time.Duration, grants []Grant, left time.Duration) {
	order := make([]int, 0, len(grants))
	for i := range grants {
		if rooms[i] > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(grants[b].Priority, grants[a].Priority) })
	weights := shares(grants)
	for len(order) > 0 && left > 0 {
		n := 1
		for n < len(order) && grants[order[n]].Priority == grants[order[0]].Priority {
			n++
		}
		left = lendClass(out, rooms, weights, slices.Clone(order[:n]), left)
		order = order[n:]
	}
}

// lendClass shares the remaining time among equals by their weights, none more than its budget can take. It returns
// what none of them can take.
func lendClass(out []TokenUpdate, rooms []time.Duration, weights []share, class []int,
	left time.Duration) time.Duration {
	for len(class) > 0 && left > 0 {
		var sum share
		for _, i := range class {
			sum += weights[i]
		}
		round, given := left, time.Duration(0)
		hungry := class[:0]
		for _, i := range class {
			part := min(time.Duration(int64(round)*int64(weights[i])/int64(max(sum, 1))), rooms[i])
			out[i].Add, out[i].Spare = out[i].Add+part, out[i].Spare+part
			rooms[i] -= part
			given += part
			if rooms[i] > 0 {
				hungry = append(hungry, i)
			}
		}
		left -= given
		if len(hungry) == len(class) || given == 0 {
			break // all took their parts: only the remainder of the division is left
		}
		class = hungry
	}
	for _, i := range class { // it is not a lower class's
		part := min(left, rooms[i])
		out[i].Add, out[i].Spare = out[i].Add+part, out[i].Spare+part
		rooms[i], left = rooms[i]-part, left-part
	}
	return left
}
