// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import (
	"cmp"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// place is one grant on one GPU.
type place struct {
	grant GrantID
	gpu   sharing.GPURef
}

// unmanagedUse is one unmanaged process on one GPU.
type unmanagedUse struct {
	Process
	gpu sharing.GPURef
}

// episode is a time during which a grant was over its cap in each sample.
type episode struct {
	// within is when the grant was seen within its cap last, or over it first where it never was.
	within time.Time
	// samples counts those that saw it over, and judged is true once a verdict was given.
	samples int
	judged  bool
	// evict is when an eviction is asked for again.
	evict time.Time
	// last are the processes of the sample before, and ended when those that have ended were seen first.
	last  map[Process]bool
	ended map[Process]time.Time
}

// Watch remembers from one sample to the next. Make it with New. It is not safe for concurrent use.
type Watch struct {
	// within is when each grant was seen within its cap last.
	within map[place]time.Time
	over   map[place]*episode
	// unmanaged processes are those of the sample before, with when they were seen first.
	unmanaged map[unmanagedUse]time.Time
	// escaped are those of the sample before, in the same way.
	escaped map[unmanagedUse]escape
	// named are the processes that were to be ended and that are still there.
	named map[Process]bool
	// last is when the sample before was taken; zero before the first.
	last time.Time
	// costs are those of the last samples, the oldest at next.
	costs [costSamples]time.Duration
	next  int
}

// New returns a Watch that has seen nothing.
func New() *Watch {
	return &Watch{
		within: map[place]time.Time{}, over: map[place]*episode{},
		unmanaged: map[unmanagedUse]time.Time{}, escaped: map[unmanagedUse]escape{}, named: map[Process]bool{},
	}
}

// Spare tells that a process which a verdict named was not ended. It may be named again.
func (w *Watch) Spare(p Process) { delete(w.named, p) }

// Step judges one sample, taken at now. Samples are given in the order of their time.
func (w *Watch) Step(now time.Time, s Sample) Decision {
	gpus := make(map[sharing.GPURef]GPU, len(s.GPUs))
	for _, g := range s.GPUs {
		gpus[g.ID] = g
	}
	w.forget(s)
	var d Decision
	pace := Idle
	for _, c := range s.Caps {
		standing, verdicts, wanted := w.judge(now, c, gpus[c.GPU])
		d.Standings = append(d.Standings, standing)
		d.Verdicts = append(d.Verdicts, verdicts...)
		pace = min(pace, wanted)
	}
	verdicts, fresh := w.judgeUnmanaged(now, s)
	d.Verdicts = append(d.Verdicts, verdicts...)
	if fresh {
		pace = Fast
	}
	if verdicts, fresh = w.escapes(now, s); fresh {
		pace = Fast
	}
	d.Verdicts = append(d.Verdicts, verdicts...)
	w.last = now
	if len(s.Caps) > 0 || s.EndUnmanaged {
		d.Next = min(max(pace, costShare*w.cost(s.Cost)), Slowest)
	}
	return d
}

// cost notes the cost of a sample, and returns the lowest of the last ones. A sample that waits for the driver while a
// program makes its context costs no CPU time. That program may be over its cap a moment later.
func (w *Watch) cost(of time.Duration) time.Duration {
	w.costs[w.next] = of
	w.next = (w.next + 1) % costSamples
	return slices.Min(w.costs[:])
}

// judge looks at one grant on one GPU. wanted is how soon it should be looked at again.
func (w *Watch) judge(now time.Time, c Cap, g GPU) (Standing, []Verdict, time.Duration) {
	at := place{c.Grant, c.GPU}
	out := Standing{Grant: c.Grant, GPU: c.GPU}
	h := gpuUsageOf(c.Grant, g)
	if !h.known {
		// What was seen before and after a gap is not in a row.
		delete(w.over, at)
		return out, nil, Default
	}
	out.Known, out.Used = true, h.bytes
	if h.bytes <= c.Memory {
		delete(w.over, at)
		w.within[at] = now
		switch {
		case near(h.bytes, c.Memory):
			return out, nil, Fast
		case len(h.uses) > 0:
			return out, nil, Default
		}
		return out, nil, Idle
	}
	e, before := w.episode(now, at, h)
	if e.samples < 2 {
		return out, nil, Fast
	}
	out.Over, out.Action = true, c.action(h)
	v := Verdict{Action: out.Action, Reason: OverCap, GPU: c.GPU, Grant: c.Grant, Used: h.bytes, Cap: c.Memory,
		First: !e.judged, Delay: now.Sub(e.within)}
	switch out.Action {
	case Warn:
		if e.judged {
			return out, nil, Default
		}
	case Evict:
		if now.Before(e.evict) {
			return out, nil, Default
		}
		e.evict = now.Add(EvictAgain)
	case Kill:
		verdicts, more := w.kill(v, h, before,
			func(u Use) bool { return u.Ended && now.Sub(e.ended[u.Process]) < ReturnTime })
		e.judged = e.judged || len(verdicts) > 0
		if !more {
			return out, nil, Default // those that were named are on their way
		}
		return out, verdicts, Fast // none for a process that the previous sample did not have
	}
	e.judged = true
	return out, []Verdict{v}, Fast
}

// episode notes one more sample in which a grant is over its cap, and returns who was there in the one before.
func (w *Watch) episode(now time.Time, at place, h gpuUsage) (*episode, map[Process]bool) {
	e := w.over[at]
	if e == nil {
		e = &episode{within: now}
		if t, ok := w.within[at]; ok {
			e.within = t
		}
		w.over[at] = e
	}
	e.samples++
	before := e.last
	first := e.ended
	e.last, e.ended = map[Process]bool{}, map[Process]time.Time{}
	for _, u := range h.uses {
		e.last[u.Process] = true
		if at, seen := first[u.Process]; u.Ended && seen {
			e.ended[u.Process] = at
		} else if u.Ended {
			e.ended[u.Process] = now
		}
	}
	for _, p := range h.retainers {
		e.last[p] = true
	}
	return e, before
}

// action is what is done about a grant that is over its cap.
func (c Cap) action(h gpuUsage) Action {
	slack := sharing.Bytes(0)
	for _, u := range h.uses {
		if u.Ended {
			continue
		}
		if slack += min(c.Slack, c.Memory-slack); slack == c.Memory {
			break
		}
	}
	certain := h.bytes - h.inferred // a part of it
	if certain <= c.Memory || certain-c.Memory <= slack && slack > 0 {
		return Warn
	}
	return c.Action
}

// near reports whether so much of the cap is held that the next allocation may exceed it.
func near(held, limit sharing.Bytes) bool { return held > limit/100*FastPercent }

// worse is above 0 when the victim rule names a before b.
func worse(a, b Use) int {
	return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
}

// judgeUnmanaged judges the processes without a grant. fresh is true while one was seen for the first time.
func (w *Watch) judgeUnmanaged(now time.Time, s Sample) (verdicts []Verdict, fresh bool) {
	seen := map[unmanagedUse]time.Time{}
	for _, g := range s.GPUs {
		if !s.EndUnmanaged || !g.Answered {
			continue
		}
		for _, p := range g.Unmanaged {
			who := unmanagedUse{p, g.ID}
			first, again := w.unmanaged[who]
			if !again {
				if first, fresh = w.last, true; first.IsZero() {
					first = now
				}
			}
			seen[who] = first
			if again && !w.named[p] {
				w.named[p] = true
				verdicts = append(verdicts, Verdict{Action: Kill, Reason: Unmanaged, GPU: g.ID, Victim: p, First: true,
					Delay: now.Sub(first)})
			}
		}
	}
	w.unmanaged = seen
	return verdicts, fresh
}

// forget drops what is known of grants and processes that are gone.
func (w *Watch) forget(s Sample) {
	caps := map[place]bool{}
	for _, c := range s.Caps {
		caps[place{c.Grant, c.GPU}] = true
	}
	for at := range w.within {
		if !caps[at] {
			delete(w.within, at)
		}
	}
	for at := range w.over {
		if !caps[at] {
			delete(w.over, at)
		}
	}
	here := map[Process]bool{}
	for _, g := range s.GPUs {
		if !g.Answered {
			return // a process that was named may be there
		}
		for _, u := range g.Uses {
			here[u.Process] = true
		}
		for _, k := range g.Retainers {
			here[k.Process] = true
		}
		for _, p := range g.Unmanaged {
			here[p] = true
		}
	}
	for p := range w.named {
		if !here[p] {
			delete(w.named, p)
		}
	}
}
