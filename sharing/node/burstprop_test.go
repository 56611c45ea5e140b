// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// TestBurstsAtRandom plays grants with and without bursts, their usage, new grants, limits, ends, restarts and kills.
// After every step it checks that the driver's limits together fit their GPU, and that each grant has at least its
// guarantee. A new grant must succeed exactly if guaranteed memory and used burst memory leave enough.
func TestBurstsAtRandom(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -args -seed=%d -steps=%d)", s, s, *steps)
	b := newBurstBench(t, config.Pool{})
	b.gpus = b.gpus[:2]
	b.caps.by = map[string]sharing.Bytes{}
	b.still()
	p := &lender{bench: b, rnd: rand.New(rand.NewPCG(s, 1)), did: map[string]int{}}
	must := []string{"lease", "not enough free", "burst", "use", "end", "limit", "limit refused", "restart",
		"killed at lend-after-book", "killed at lend-after-cap", "killed at limit-after-book",
		"killed at limit-after-cap"}
	for step := 0; step < *steps || step < 10*(*steps) && len(neverDid(must, p.did)) > 0; step++ {
		what := p.step()
		p.did[what]++
		p.invariants()
		if t.Failed() {
			t.Fatalf("step %d: %s", step, what)
		}
	}
	t.Logf("steps: %v", p.did)
	if never := neverDid(must, p.did); len(never) > 0 {
		t.Errorf("%q never happened: %v", never, p.did)
	}
}

// lender is the users of two GPUs, with a naive idea of what each has.
type lender struct {
	*bench
	rnd         *rand.Rand
	attachments []*active
	did         map[string]int
}

// attachment is one of them: what it is guaranteed, where, and what it uses.
type active struct {
	*tenant
	id         ledger.GrantID
	gpu        sharing.GPURef
	dir        string
	guaranteed sharing.Bytes
	burst      bool
	used       sharing.Bytes
}

func (p *lender) step() string {
	switch k := p.rnd.IntN(100); {
	case k < 25:
		return p.grant()
	case k < 33:
		p.loans.Balance(p.t.Context())
		return "burst"
	case k < 55:
		return p.use()
	case k < 65:
		return p.end()
	case k < 75:
		return p.limit()
	case k < 80:
		p.later()
		return "a grant went away"
	case k < 82:
		p.still()
		return "restart"
	case k < 84:
		p.caps.set(func() { p.caps.strict = !p.caps.strict })
		return "another driver"
	}
	return p.kill()
}

func (p *lender) grant() string {
	n, burst, gpu := 1+p.rnd.IntN(30), p.rnd.IntN(2) == 0, p.gpus[p.rnd.IntN(len(p.gpus))].Ref()
	r := gib(n)
	r.UUIDs = []sharing.GPUID{gpu.UUID}
	if burst {
		r.Profile = "burst"
	}
	room := p.room(gpu, nil)
	l := &active{tenant: p.tenant(), gpu: gpu, guaranteed: r.Memory, burst: burst}
	id, err := p.Reserve(p.t.Context(), l.Peer, "", r)
	if (err == nil) != (r.Memory <= room) || err != nil && !errors.Is(err, sharing.ErrExhausted) {
		p.t.Errorf("grant of %s where %s can be had: %v", r.Memory, room, err)
	}
	if err != nil {
		l.tenant.end()
		return "not enough free"
	}
	if _, err := p.Activate(p.t.Context(), l.Peer, id); err != nil {
		p.t.Error(err)
	}
	g, _ := p.Store.Get(id)
	l.id, l.dir = id, g.Active.Cgroup
	p.attachments = append(p.attachments, l)
	return "lease"
}

// room is what a GPU can guarantee in addition, to l if it is one of its grants. It is all but guaranteed memory and
// what grants use above that.
func (p *lender) room(gpu sharing.GPURef, l *active) sharing.Bytes {
	taken := sharing.Bytes(0)
	for _, o := range p.attachments {
		switch {
		case o.gpu != gpu || o == l:
		case o.burst:
			taken += max(o.guaranteed, o.used)
		default:
			taken += o.guaranteed
		}
	}
	return (79 * sharing.GiB).SubFloor(taken)
}

func (p *lender) pick() *active {
	if len(p.attachments) == 0 {
		return nil
	}
	return p.attachments[p.rnd.IntN(len(p.attachments))]
}

// use changes what an attachment's processes hold, within what the driver lets them have, in whole MiB.
func (p *lender) use() string {
	l := p.pick()
	if l == nil {
		return "nothing"
	}
	limit := p.inForce(l.id, l.gpu)
	l.used = sharing.Bytes(p.rnd.Int64N(int64(limit/sharing.MiB)+1)) * sharing.MiB
	if p.rnd.IntN(3) == 0 {
		l.used = limit
	}
	p.caps.set(func() { p.caps.by[l.dir] = l.used })
	return "use"
}

func (p *lender) end() string {
	l := p.pick()
	if l == nil {
		return "nothing"
	}
	l.tenant.end()
	p.caps.set(func() { delete(p.caps.by, l.dir) })
	p.eventually("the attachment ends", func() bool {
		p.Reconcile(p.t.Context())
		_, there := p.Store.Get(l.id)
		return !there
	})
	p.attachments = slices.DeleteFunc(p.attachments, func(o *active) bool { return o == l })
	return "end"
}

func (p *lender) limit() string {
	l := p.pick()
	if l == nil {
		return "nothing"
	}
	to := sharing.Bytes(1+p.rnd.IntN(40)) * sharing.GiB
	g, _ := p.Store.Get(l.id)
	// It shrinks to its usage less its burst memory, and grows into what is available.
	fits := to+g.Burst[l.gpu] >= l.used
	if to > l.guaranteed {
		fits = to <= p.room(l.gpu, l)
	}
	err := p.Limit(p.t.Context(), as(root), l.id, to)
	if (err == nil) != fits {
		p.t.Errorf("limit of %s from %s to %s: %v; %s can be had, it uses %s and has burst memory of %s", l.id,
			l.guaranteed, to,
			err, p.room(l.gpu, l), l.used, g.Burst[l.gpu])
	}
	if err != nil {
		return "limit refused"
	}
	l.guaranteed = to
	return "limit"
}

// kill ends the agent in the middle of a change.
func (p *lender) kill() string {
	point := []string{"lend-after-book", "lend-after-cap", "limit-after-book", "limit-after-cap"}[p.rnd.IntN(4)]
	do := func() { p.loans.Balance(p.t.Context()) }
	if l := p.pick(); l != nil && point[:2] == "li" {
		do = func() {
			_ = p.Limit(p.t.Context(), as(root), l.id, sharing.Bytes(1+p.rnd.IntN(40))*sharing.GiB)
		}
	}
	met := p.crashes(point, do)
	for _, l := range p.attachments { // a limit may have been changed, or not
		g, _ := p.Store.Get(l.id)
		l.guaranteed = g.Placement[0].Memory
	}
	if !met {
		return "nothing"
	}
	return "killed at " + point
}

func (p *lender) invariants() {
	p.t.Helper()
	p.consistent()
	sum, guaranteed := map[sharing.GPURef]sharing.Bytes{}, map[sharing.GPURef]sharing.Bytes{}
	for _, l := range p.attachments {
		g, _ := p.Store.Get(l.id)
		limit := p.inForce(l.id, l.gpu)
		f, _ := g.Caps().On(l.gpu)
		if f.Memory != limit || g.Placement[0].Memory != l.guaranteed {
			p.t.Errorf("%s: booked %s, enforced %s, guaranteed %s, want %s", l.id, f.Memory, limit,
				g.Placement[0].Memory, l.guaranteed)
		}
		if most := max(l.guaranteed, 40*sharing.GiB); limit < l.guaranteed || limit > most || !l.burst &&
			limit > l.guaranteed || limit < l.used {
			p.t.Errorf("%s: limit %s, guaranteed %s, used %s, burst %v", l.id, limit, l.guaranteed, l.used, l.burst)
		}
		sum[l.gpu] += limit
		guaranteed[l.gpu] += l.guaranteed
	}
	for _, g := range p.gpus {
		if sum[g.Ref()] > g.Usable() {
			p.t.Errorf("GPU %d: processes may use %s of %s, %s guaranteed", g.Index, sum[g.Ref()], g.Usable(),
				guaranteed[g.Ref()])
		}
	}
}
