// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/compute"
)

// program launches kernels of one length whenever its budget is above zero and it has fewer than two in flight. A
// kernel is charged at its launch, by worth percent of what it takes.
type program struct {
	account
	id       compute.ID
	pid      int
	percent  sharing.Percent
	kernel   time.Duration
	worth    int
	inFlight int
	used     time.Duration
}

// noise is how often an answer of the driver is wrong, in percent, and in which way.
type noise struct{ stale, missing, dead, garbage int }

// exclusive is a GPU that runs one kernel at a time to its end, the programs in turn. Its driver samples which of them
// is on it. It is the source of a pacer, and has a separate clock.
type exclusive struct {
	t        *testing.T
	rand     *rand.Rand
	noise    noise
	programs []*program
	now      time.Duration
	running  *program
	until    time.Duration
	turn     int

	// ring has the samples: who ran at each, and for what percent of its period anyone did.
	ring []struct {
		at      time.Duration
		pid     int
		percent int
	}
	busy time.Duration // of the period that has not ended
	last int           // pid that ran last in it
	each func(second []float64)
}

// when is a moment of the model on the driver's clock.
func when(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

func (g *exclusive) Changed() <-chan struct{} { return nil }

func (g *exclusive) Attachments() (compute.Mode, []Attachment) {
	var all []Attachment
	for _, p := range g.programs {
		all = append(all, Attachment{GPU: sharing.GPURef{UUID: "GPU-0"}, Grant: compute.Grant{ID: p.id,
			Percent: p.percent},
			Account: &p.account})
	}
	return compute.Strict, all
}

// rows are what the driver answers, with what is wrong with it.
func (g *exclusive) rows(since time.Time) []sharing.TimeRow {
	happens := func(percent int) bool { return g.rand.IntN(100) < percent }
	if happens(g.noise.missing) {
		return nil
	}
	sum, n := map[int]*sharing.TimeRow{}, 0
	var order []int
	for _, s := range g.ring {
		if !when(s.at).After(since) {
			continue
		}
		n++
		if s.pid == 0 {
			continue
		}
		if sum[s.pid] == nil {
			sum[s.pid] = &sharing.TimeRow{PID: s.pid}
			order = append(order, s.pid)
		}
		sum[s.pid].SM += s.percent
		sum[s.pid].At = when(s.at)
	}
	var out []sharing.TimeRow
	for _, pid := range order {
		r := *sum[pid]
		r.SM /= n
		if happens(g.noise.stale) {
			r.At, r.SM = since.Add(-time.Duration(g.rand.IntN(int(sharing.TimeRing)))), g.rand.IntN(101)
		}
		if happens(g.noise.garbage) {
			r.SM = 101 + g.rand.IntN(1<<16)
		}
		out = append(out, r)
	}
	if happens(g.noise.dead) {
		out = append(out, sharing.TimeRow{PID: 1 << 22, At: when(g.now), SM: g.rand.IntN(101)})
	}
	if happens(g.noise.garbage) {
		out = append(out, sharing.TimeRow{At: when(g.now), SM: g.rand.IntN(101)})
	}
	return out
}

// Used implements Source as the node runtime does: the time of an unknown process could be any grant's.
func (g *exclusive) Used(_ context.Context, _ sharing.GPURef, since time.Time) (Use, error) {
	reported := sharing.UseOf(g.rows(since), since)
	use := Use{To: reported.To, Percent: map[compute.ID]int{}, Doubt: map[compute.ID]bool{}}
	known := 0
	for _, p := range g.programs {
		if row, in := reported.Rows[p.pid]; in {
			use.Percent[p.id] = row.SM
			use.Busy += row.SM
			known++
		}
		use.Doubt[p.id] = slices.Contains(reported.Doubt, p.pid)
	}
	if known < len(reported.Rows) {
		return Use{}, sharing.ErrUnavailable
	}
	return use, nil
}

// pass lets time go on, with whatever runs.
func (g *exclusive) pass(to time.Duration) {
	for g.now < to {
		next := min(to, (g.now/sharing.TimeSample+1)*sharing.TimeSample)
		if g.running != nil {
			g.running.used += next - g.now
			g.busy += next - g.now
			g.last = g.running.pid
		}
		if g.now = next; g.now%sharing.TimeSample == 0 {
			g.ring = append(g.ring, struct {
				at      time.Duration
				pid     int
				percent int
			}{g.now, g.last, int(100 * g.busy / sharing.TimeSample)})
			g.ring = g.ring[max(0, len(g.ring)-72):]
			g.busy, g.last = 0, 0
			if g.running != nil {
				g.last = g.running.pid
			}
		}
	}
}

// run moves the GPU until a moment.
func (g *exclusive) run(end time.Duration) {
	for {
		for _, p := range g.programs {
			for p.balance > 0 && p.turn != compute.Paused && p.inFlight < 2 {
				p.spend(p.kernel * time.Duration(p.worth) / 100)
				p.inFlight++
			}
		}
		for i := 1; g.running == nil && i <= len(g.programs); i++ {
			if p := g.programs[(g.turn+i)%len(g.programs)]; p.inFlight > 0 {
				g.running, g.until, g.turn = p, g.now+p.kernel, (g.turn+i)%len(g.programs)
			}
		}
		if g.running == nil || g.until > end {
			g.pass(end)
			return
		}
		g.pass(g.until)
		g.running.inFlight--
		g.running = nil
	}
}

// play has the pacer refill for some seconds, and returns what part of each second each program used.
func (g *exclusive) play(seconds int) (parts [][]float64) {
	p := pacer(nil)
	p.Source = g
	before := make([]time.Duration, len(g.programs))
	var last, asked, next time.Duration
	for s := range seconds {
		for ; next < time.Duration(s+1)*time.Second; next += pause(g.rand.Float64()) {
			g.run(next)
			ask := next-asked >= UsedEvery
			p.step(g.t.Context(), when(next), next-last, ask)
			if last = next; ask {
				asked = next
			}
		}
		g.run(time.Duration(s+1) * time.Second)
		var part []float64
		for i, q := range g.programs {
			part = append(part, (q.used - before[i]).Seconds())
			before[i] = q.used
		}
		parts = append(parts, part)
		if g.each != nil {
			g.each(part)
		}
	}
	return parts
}

func newExclusive(t *testing.T, seed uint64, kernel time.Duration, n noise, worth ...int) *exclusive {
	return &exclusive{t: t, rand: rand.New(rand.NewPCG(seed, 5)), noise: n, programs: []*program{
		{id: "ten", pid: 100, percent: 10, kernel: kernel, worth: worth[0]},
		{id: "ninety", pid: 101, percent: 90, kernel: kernel, worth: worth[1]},
	}}
}
