// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxPending is how many stretches of work are arranged next to each other; more run one after the other.
	maxPending = 256
	// maxPast is how many changes of its speed a clock remembers.
	maxPast = 1 << 14
)

// clock is the time of one client, or of an MPS server with its clients. It stands still while work of the client waits
// for its turn. It is never ahead of real time. A launch knows at once when it ends by this clock.
type clock struct {
	id  ClientID
	lag time.Duration // by how much it is behind real time
	// kernels may overlap as long as the GPU has threads for them. copies run one after the other.
	kernels, copies []work
	// past are the moments at which its speed changed, in order.
	past []moment
}

// work is a stretch of a clock's time in which something runs.
type work struct {
	from, to time.Duration
	need     uint64 // threads
	client   ClientID
	pid      int
}

// moment is a value of a clock and when it had it.
type moment struct{ clock, real time.Duration }

// at is the clock's value at a moment.
func (c *clock) at(now time.Duration) time.Duration { return now - c.lag }

// active are the stretches of work in which a clock is.
func active(all []work, v time.Duration) (is []work) {
	for _, w := range all {
		if w.from <= v && v < w.to {
			is = append(is, w)
		}
	}
	return is
}

// end is when the last work ends, 0 for none.
func end(all []work) (last time.Duration) {
	for _, w := range all {
		last = max(last, w.to)
	}
	return last
}

func (c *clock) idle(now time.Duration) bool {
	return max(end(c.kernels), end(c.copies)) <= c.at(now)
}

// add queues a kernel that is not to begin before after, and returns when it ends by the clock.
func (c *clock) add(w work, d, after, now time.Duration, threads uint64) time.Duration {
	c.rest(now)
	w.from = fit(c.kernels, max(c.at(now), after), d, w.need, threads)
	w.to = w.from + d
	c.kernels = join(c.kernels, w)
	return w.to
}

// copy is add for a copy of memory, which takes d if the bandwidth is its own.
func (c *clock) copy(w work, d, after, now time.Duration) time.Duration {
	c.rest(now)
	w.from = max(c.at(now), after, end(c.copies))
	w.to = w.from + d
	c.copies = join(c.copies, w)
	return w.to
}

// rest brings a clock without work up to real time.
func (c *clock) rest(now time.Duration) {
	if c.lag > 0 && c.idle(now) {
		c.note(now)
		c.lag = 0
		c.note(now)
	}
}

// fit returns the first moment, not before ready, at which enough of all threads are free for the whole duration.
func fit(all []work, ready, d time.Duration, need, threads uint64) time.Duration {
	if len(all) >= maxPending {
		return max(ready, end(all))
	}
	var edges []time.Duration
	for _, w := range all {
		edges = append(edges, w.from, w.to)
	}
	slices.Sort(edges)
	from, begin := ready, ready
	for _, edge := range edges {
		if edge <= begin {
			continue
		}
		switch {
		case need+needed(all, begin, edge) > threads:
			from = edge
		case edge-from >= d:
			return from
		}
		begin = edge
	}
	return from
}

// needed are the threads of the work that runs in a stretch of time.
func needed(all []work, from, to time.Duration) (sum uint64) {
	for _, w := range all {
		if w.from < to && w.to > from {
			sum += w.need
		}
	}
	return sum
}

// join appends work, or makes it part of the work of the same client that ends as it begins.
func join(all []work, w work) []work {
	for i := len(all) - 1; i >= 0; i-- {
		if p := &all[i]; p.to == w.from && p.client == w.client && p.need == w.need {
			p.to = w.to
			return all
		}
	}
	return append(all, w)
}

// done forgets the work that has ended.
func (c *clock) done(now time.Duration) {
	over := func(w work) bool { return w.to <= c.at(now) }
	c.kernels = slices.DeleteFunc(c.kernels, over)
	c.copies = slices.DeleteFunc(c.copies, over)
}

// cancel ends the work of a client now.
func (c *clock) cancel(id ClientID) {
	of := func(w work) bool { return w.client == id }
	c.kernels = slices.DeleteFunc(c.kernels, of)
	c.copies = slices.DeleteFunc(c.copies, of)
}

// next is the first moment of the clock after v at which work begins or ends; false: there is none.
func (c *clock) next(v time.Duration) (first time.Duration, found bool) {
	for _, all := range [][]work{c.kernels, c.copies} {
		for _, w := range all {
			for _, edge := range []time.Duration{w.from, w.to} {
				if edge > v && (!found || edge < first) {
					first, found = edge, true
				}
			}
		}
	}
	return first, found
}

// note remembers the clock's value now, as its speed changes.
func (c *clock) note(now time.Duration) {
	m := moment{c.at(now), now}
	n := len(c.past)
	switch {
	case n > 0 && c.past[n-1] == m:
		return
	case n > 1 && c.past[n-1].clock == m.clock && c.past[n-2].clock == m.clock:
		c.past[n-1] = m
		return
	case n >= maxPast:
		c.past = append(c.past[:0], c.past[n/2:]...)
	}
	c.past = append(c.past, m)
}

// passed is when the clock came to v, which it has.
func (c *clock) passed(v time.Duration) time.Duration {
	i, _ := slices.BinarySearchFunc(c.past, v, func(m moment, v time.Duration) int { return cmp.Compare(m.clock, v) })
	switch {
	case i == len(c.past):
		return v + c.lag
	case i == 0 || c.past[i].clock == v:
		return c.past[i].real - (c.past[i].clock - v)
	}
	from, to := c.past[i-1], c.past[i]
	return from.real + time.Duration(float64(v-from.clock)/float64(to.clock-from.clock)*float64(to.real-from.real))
}
