// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package collect takes the samples. Once per interval it reads every GPU from a source, and finds the owners of the
// processes. It has package attribution divide the usage, and publishes one Snapshot.
//
// It promises that all readers see the same snapshots, that none delays another, and that a slow reader gets the
// number of missed ones. A GPU that does not answer delays nothing, and its values are absent. Intervals use the
// monotonic clock, so a jump of the wall clock changes no value.
//
// It does not act, and it does not know the origin and destination of samples. Source, grants and cgroups reach it
// through interfaces that it declares.
package collect

import (
	"context"
	"sync"
	"time"
)

// kept is how many snapshots a reader may be behind before it misses one: three seconds at the shortest interval.
const kept = 30

// Broadcaster hands snapshots to readers. Each reader keeps its position, so a slow one delays no other.
type Broadcaster struct {
	mu   sync.Mutex
	ring [kept]*Snapshot
	last uint64
	news chan struct{} // closed at the next snapshot
	want map[*IntervalRequest]time.Duration
	wish chan struct{} // has a token when a shorter interval is wanted
}

// NewBroadcaster makes a hub without a snapshot.
func NewBroadcaster() *Broadcaster {
	return &Broadcaster{news: make(chan struct{}), want: map[*IntervalRequest]time.Duration{}, wish: make(chan struct{},
		1)}
}

// Publish numbers a snapshot and gives it to all who wait. A Collector does it.
func (h *Broadcaster) Publish(s *Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	s.Seq = h.last
	h.ring[h.last%kept] = s
	close(h.news)
	h.news = make(chan struct{})
}

// Latest returns the newest snapshot, or nil before the first.
func (h *Broadcaster) Latest() *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ring[h.last%kept]
}

// Next returns the oldest snapshot after that number that is still kept, and waits for one if need be. It also returns
// how many the reader has missed in between. The error is ctx's.
func (h *Broadcaster) Next(ctx context.Context, after uint64) (s *Snapshot, missed uint64, err error) {
	for {
		h.mu.Lock()
		news := h.news
		if h.last > after {
			first := after + 1
			if h.last > kept {
				first = max(first, h.last-kept+1)
			}
			s = h.ring[first%kept]
		}
		h.mu.Unlock()
		if s != nil {
			return s, s.Seq - after - 1, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// IntervalRequest is a reader's wish for an interval, until it is taken back.
type IntervalRequest struct{ hub *Broadcaster }

// Every asks for samples at an interval, if the collector's own is longer.
func (h *Broadcaster) Every(d time.Duration) *IntervalRequest {
	w := &IntervalRequest{h}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want[w] = d
	select {
	case h.wish <- struct{}{}:
	default:
	}
	return w
}

// End takes the wish back.
func (w *IntervalRequest) End() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	delete(w.hub.want, w)
}

// interval is the shortest that is wanted, within own and least.
func (h *Broadcaster) interval(own time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.want {
		own = min(own, d)
	}
	return max(own, ShortestInterval)
}

// placeKept is how long a living process is taken to be in the cgroup that it was found in. Programs are put into their
// cgroup before they touch a GPU; only root moves one later.
const placeKept = 30 * time.Second

// Processes finds out whose processes are. One goroutine calls it.
type Processes interface {
	// Cgroup is the absolute directory of a process's cgroup.
	Cgroup(pid int) (string, error)
	// Watch opens a process, so that its end is noticed before its pid is reused. Forget closes it.
	Watch(pid int) error
	Forget(pid int)
	// Ended are the watched processes that have ended since the last call; they are forgotten.
	Ended() []int
}

// place is where a process was found.
type place struct {
	dir   string
	until time.Time // when it is looked at again
	cycle uint64    // in which it was on a GPU last
}

// places remember the cgroups of the processes on GPUs, for as long as those live. So the kernel is asked for new
// processes, and not for all in each cycle.
type places struct {
	processes Processes
	known     map[int]*place
	cycle     uint64
	due       time.Time // when one is looked at again
	gone      bool      // one that was known has ended
}

// look finds ended processes. It runs after the read of the GPUs' lists, so that a reused pid on them is resolved
// again.
func (p *places) look() {
	for _, pid := range p.processes.Ended() {
		delete(p.known, pid)
		p.gone = true
	}
}

// hold reports whether all known places are valid now. Then processes that are on the GPUs as in the cycle before need
// no other check.
func (p *places) hold(now time.Time) bool { return !p.gone && now.Before(p.due) }

// begin begins a cycle.
func (p *places) begin() {
	p.cycle++
	p.gone = false
}

// of returns the cgroup directory of a process, empty if unknown.
func (p *places) of(pid int, now time.Time) string {
	at := p.known[pid]
	if at != nil && (at.cycle == p.cycle || now.Before(at.until)) {
		at.cycle = p.cycle
		return at.dir
	}
	// Open first, then read: the result belongs to this process, or its end is reported.
	held := p.processes.Watch(pid) == nil
	dir, err := p.processes.Cgroup(pid)
	if err != nil {
		dir = ""
	}
	until := now.Add(placeKept + time.Duration(pid%30)*time.Second) // not all at once
	if !held || err != nil {
		until = now
	}
	p.known[pid] = &place{dir, until, p.cycle}
	return dir
}

// end lets go of what is on no GPU any more.
func (p *places) end(now time.Time) {
	p.due = now.Add(placeKept)
	for pid, at := range p.known {
		if at.cycle != p.cycle {
			p.processes.Forget(pid)
			delete(p.known, pid)
			continue
		}
		if at.until.Before(p.due) {
			p.due = at.until
		}
	}
}
