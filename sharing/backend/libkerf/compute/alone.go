// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import "time"

// A launch that takes longer than a time slice of the GPU seems to take longer the more programs run. On an H200 with
// driver 580.159, 5 ms seem to be 8.3 ms if one other program runs. Such a grant is charged too much and gets too
// little. So now and then all other grants hold, and the launches of one grant are measured alone. A grant that runs
// while the others are idle is measured alone, too.
const (
	// longLaunch is the shortest launch that other programs make seem longer. libkerf measures each of these.
	longLaunch = time.Millisecond
	// firstAlone is how long a grant runs together with others before its launches are measured alone. The time to the
	// next measurement grows by growth each time, up to seldomAlone.
	firstAlone  = 200 * time.Millisecond
	growth      = 4
	seldomAlone = 16 * time.Second
	// mostTurn bounds a turn alone. It is long enough for the launches of others that still run, and ownTimes more.
	mostTurn  = 200 * time.Millisecond
	leastTurn = 5 * time.Millisecond
	ownTimes  = 2
)

// measured is when the launches of a grant are measured alone again.
type measured struct {
	company time.Duration // it ran together with others since it was measured last
	every   time.Duration // 0: it was not measured yet
}

// late is for how long a measurement is due.
func (m measured) late() time.Duration { return m.company - max(m.every, firstAlone) }

// again is after a measurement.
func (m measured) again() measured {
	return measured{every: min(growth*max(m.every, firstAlone), seldomAlone)}
}

// wantsTurn reports whether it is time to measure a grant's launches alone. An older libkerf tells no occupied time,
// and does not know of turns.
func (a *account) wantsTurn() bool {
	return a.launch >= longLaunch && a.occupied > 0 && a.measured.late() >= 0
}

// alone is the turn of one grant.
type alone struct {
	id   ID // empty: there is none
	left time.Duration
}

// turns tells each grant whether it may launch until the next step.
func (c *Controller) turns(passed time.Duration, grants []Grant, seen map[ID]Seen, out []TokenUpdate) {
	running := c.running(grants, seen)
	if c.alone.left -= passed; c.alone.left <= 0 {
		c.alone = c.choose(passed, running)
	}
	for i := range out {
		switch {
		case c.alone.id == out[i].ID || len(running) == 1 && running[0] == out[i].ID:
			out[i].Launch = Alone
		case c.alone.id != "":
			out[i].Launch = Paused
		}
	}
}

// running are the grants that launch something.
func (c *Controller) running(grants []Grant, seen map[ID]Seen) (out []ID) {
	for _, g := range grants {
		if _, known := seen[g.ID]; known && c.account(g.ID).quiet < quietAfter && c.account(g.ID).launch > 0 {
			out = append(out, g.ID)
		}
	}
	return out
}

// choose gives a turn to the grant that waits longest for one, if any is due.
func (c *Controller) choose(passed time.Duration, running []ID) (next alone) {
	if len(running) == 1 { // it is measured alone as it is
		c.accounts[running[0]].measured = measured{every: growth * firstAlone}
		return alone{}
	}
	var due *account
	var longest time.Duration
	for _, id := range running {
		a := c.accounts[id]
		longest = max(longest, a.launch)
		a.measured.company += passed
		if a.wantsTurn() && (due == nil || a.measured.late() > due.measured.late()) {
			due, next.id = a, id
		}
	}
	if due == nil {
		return alone{}
	}
	due.measured = due.measured.again()
	next.left = min(leastTurn+longest+ownTimes*due.launch, mostTurn)
	return next
}
