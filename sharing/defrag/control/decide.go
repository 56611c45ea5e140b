// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Next decides the next act.
func Next(r Record, v View, l Limits, now time.Time) Decision {
	d := &decider{Decision: Decision{Record: r}, view: &v, now: now,
		limits: Limits{cmp.Or(l.PerPoolPerHour, DefaultPerPoolPerHour), cmp.Or(l.Wait, DefaultWait)}}
	d.Record.Moves, d.Record.Evictions = slices.Clone(r.Moves), slices.DeleteFunc(slices.Clone(r.Evictions),
		func(e Eviction) bool { return now.Sub(e.At) >= time.Hour })
	switch r.Phase {
	case Idle:
	case Moving:
		d.move()
	case Releasing:
		d.release()
	case Stopping:
		d.stop()
	}
	return d.Decision
}

type decider struct {
	Decision
	view   *View
	limits Limits
	now    time.Time
}

// phase begins a phase.
func (d *decider) phase(p Phase) { d.Record.Phase, d.Record.Since = p, d.now }

// fail begins to stop, with a reason.
func (d *decider) fail(format string, args ...any) {
	d.Record.Stopped, d.Record.StoppedAt = fmt.Sprintf(format, args...), d.now
	d.phase(Stopping)
}

// waits reports whether the pending pod still waits.
func (d *decider) waits() bool {
	p, ok := d.view.pod(d.Record.For.UID)
	return ok && p.Node == "" && !p.Ending
}

// cordoned reports whether all GPUs are cordoned, and whether one is.
func (d *decider) cordoned() (all, one bool) {
	n := 0
	for _, g := range d.Record.GPUs {
		if slices.Contains(d.view.Cordoned, g) {
			n++
		}
	}
	return n == len(d.Record.GPUs), n > 0
}

// move moves the next pod.
func (d *decider) move() {
	if !d.waits() {
		d.phase(Stopping) // it runs, or is gone
		return
	}
	if all, _ := d.cordoned(); !all {
		if d.now.Sub(d.Record.Since) > d.limits.Wait { // the node is gone, or someone else's cordon is on a GPU
			d.fail("not all GPUs of node %s could be cordoned within %v", d.Record.Node, d.limits.Wait)
			return
		}
		d.Act = Cordon
		return
	}
	for i := range d.Record.Moves {
		if m := &d.Record.Moves[i]; !m.Done {
			d.evict(m)
			if !m.Done {
				return
			}
		}
	}
	d.phase(Releasing)
}

// evict brings one move on.
func (d *decider) evict(m *Move) {
	p, there := d.view.pod(m.Pod.UID)
	if m.Evicted.IsZero() {
		switch {
		case !there || p.Ending || p.Node != m.Node:
			m.Done = true // It went by itself.
		case p.StayReason != "":
			d.fail("pod %s cannot be moved any more: %s", m.Pod, p.StayReason)
		case d.recent(m.Pool) >= d.limits.PerPoolPerHour:
			d.Reason = fmt.Sprintf("pool %s had %d evictions in the last hour", m.Pool, d.recent(m.Pool))
		default:
			m.Evicted, m.Ready = d.now, d.view.ready(m.Owner)
			d.Record.Evictions = append(d.Record.Evictions, Eviction{m.Pool, d.now})
			d.Act, d.Move = Evict, *m
		}
		return
	}
	late := d.now.Sub(m.Evicted) > d.limits.Wait
	switch {
	case there && late:
		d.fail("pod %s did not end within %v after its eviction", m.Pod, d.limits.Wait)
	case there && !p.Ending:
		d.Act, d.Move = Evict, *m // a kill came before it, or a disruption budget put it off
	case there:
		d.Reason = fmt.Sprintf("pod %s is ending", m.Pod)
	case d.view.ready(m.Owner) >= m.Ready:
		m.Done = true
	case late:
		d.fail("the replacement of pod %s did not run within %v", m.Pod, d.limits.Wait)
	default:
		d.Reason = fmt.Sprintf("the replacement of pod %s does not run yet", m.Pod)
	}
}

// recent is the number of evictions of a pool in the last hour.
func (d *decider) recent(pool string) int {
	n := 0
	for _, e := range d.Record.Evictions {
		if e.Pool == pool {
			n++
		}
	}
	return n
}

// release lets the pending pod have the GPUs.
func (d *decider) release() {
	if _, one := d.cordoned(); one {
		d.Act = Uncordon
		return
	}
	switch {
	case !d.waits():
		d.end(Finished, fmt.Sprintf("pod %s has its GPUs on node %s, or is gone", d.Record.For, d.Record.Node))
	case d.now.Sub(d.Record.Since) > d.limits.Wait:
		d.fail("pod %s did not get the free GPUs of node %s within %v", d.Record.For, d.Record.Node, d.limits.Wait)
	default:
		d.Reason = fmt.Sprintf("pod %s is not placed yet", d.Record.For)
	}
}

// stop uncordons the GPUs.
func (d *decider) stop() {
	if _, one := d.cordoned(); one {
		d.Act = Uncordon
		return
	}
	if d.Record.StoppedAt.IsZero() {
		d.end(Finished, fmt.Sprintf("pod %s needs no more moves", d.Record.For))
		return
	}
	d.end(Failed, d.Record.Stopped)
}

// end forgets the moves. The evictions of the last hour and a reason to pause stay.
func (d *decider) end(act Act, why string) {
	d.Act, d.Reason = act, why
	d.Record = Record{Evictions: d.Record.Evictions, Stopped: d.Record.Stopped, StoppedAt: d.Record.StoppedAt}
}
