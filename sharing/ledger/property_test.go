// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

var (
	steps = flag.Int("steps", 10_000, "random steps of the property test")
	seed  = flag.Uint64("seed", 1, "seed of the property test; 0 takes one from the clock")
)

// TestAgainstNaive plays random steps on the ledger, the allocator and a naive model, and compares them after every
// step. The steps are grants, activations, ends, releases, faults, inventories and restarts.
func TestAgainstNaive(t *testing.T) {
	t.Parallel()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -args -seed=%d -steps=%d)", s, s, *steps)
	p := &player{t: t, rnd: rand.New(rand.NewPCG(s, 0)), l: ledger.New(), done: map[string]int{}}
	p.inventory()
	told := story{}
	// A run that never met one of these has not tested what it is for: it goes on until it has.
	var missing []string
	for step := 0; step < *steps || step < 20*(*steps) && len(missing) > 0; step++ {
		what := p.step()
		p.done[what]++
		if err := p.l.Check(); err != nil {
			t.Fatalf("step %d, %s: %v", step, what, err)
		}
		if err := p.compare(); err != nil {
			t.Fatalf("step %d, %s: %v", step, what, err)
		}
		if what == "restart" {
			clear(told)
		}
		if told.after(t, p.l.Transitions()); !maps.Equal(told, lives(p.l)) {
			t.Fatalf("step %d, %s: the transitions tell another story: %s", step, what, cmp.Diff(lives(p.l), told))
		}
		if step+1 >= *steps && *steps >= 10_000 {
			missing = slices.DeleteFunc(mustHappen(), func(what string) bool { return p.done[what] > 0 })
		}
	}
	t.Logf("steps: %v", p.done)
	if len(missing) > 0 {
		t.Errorf("%q never happened: %v", missing, p.done)
	}
}

func mustHappen() []string {
	return []string{
		"reserved", "no fit", "by hand, taken", "by hand, refused", "activated", "activated in part", "not activated",
		"assigned",
		"not assigned", "injected", "not injected", "activating", "not activating", "activated late", "failed",
		"unassigned", "not unassigned", "marked", "ended", "released", "restored", "restart", "overbooked", "resized",
		"not resized", "burst", "no burst", "taken back", "joined", "not joined", "not released, shared",
	}
}

type player struct {
	t    *testing.T
	rnd  *rand.Rand
	l    *ledger.Ledger
	n    naive
	next int
	done map[string]int
}

// step does one random thing and says what.
func (p *player) step() string {
	switch k := p.rnd.IntN(100); {
	case k < 21:
		return p.choose()
	case k < 24:
		return p.join()
	case k < 30:
		return p.lend()
	case k < 40:
		return p.byHand()
	case k < 49:
		return p.activateNew()
	case k < 62:
		return p.attach()
	case k < 74:
		return p.end()
	case k < 84:
		return p.release()
	case k < 86:
		return p.resize()
	case k < 89:
		return p.restore()
	case k < 94:
		return p.health()
	case k < 98:
		p.inventory()
		return "inventory"
	default:
		return p.restart()
	}
}

// request returns a valid request.
func (p *player) request() sharing.Request {
	for {
		r := sharing.Request{GPUs: 1, Place: sharing.Spread(p.rnd.IntN(3))}
		if p.rnd.IntN(4) == 0 {
			r.GPUs = 1 + p.rnd.IntN(3)
		}
		switch p.rnd.IntN(7) {
		case 0:
			r.Kind = sharing.KindWhole
		case 1, 2, 3:
			r.Memory = sharing.Bytes(r.GPUs) * (sharing.MiB + sharing.Bytes(p.rnd.Int64N(int64(10*sharing.GiB))))
		case 4:
			r.Percent = sharing.Percent(r.GPUs * (1 + p.rnd.IntN(100)))
		default:
			r.Memory = sharing.Bytes(r.GPUs) * sharing.Bytes(1+p.rnd.IntN(8)) * sharing.GiB
			r.Percent = sharing.Percent(r.GPUs * (1 + p.rnd.IntN(50)))
		}
		switch p.rnd.IntN(4) {
		case 0:
			r.Burst.Memory = sharing.Bytes(r.GPUs) * sharing.Bytes(p.rnd.Int64N(int64(30*sharing.GiB)))
		case 1:
			r.Burst.Percent = 101 + p.rnd.Uint32N(300)
		}
		switch p.rnd.IntN(8) {
		case 0:
			r.Models = []string{"*H100*"}
		case 1:
			r.Models = []string{"!*h100*"}
		case 2:
			r.UUIDs = []sharing.GPUID{uuid(fmt.Sprint("gpu", p.rnd.IntN(6))).UUID}
		}
		if r.Validate() == nil {
			return r
		}
	}
}

func (p *player) newGrant(r sharing.Request, placement sharing.Placement) ledger.Reservation {
	p.next++
	c := ledger.Reservation{ID: ledger.GrantID(fmt.Sprint("c", p.next)), Request: r, Placement: placement}
	if p.rnd.IntN(2) == 0 {
		c.Owner.PodUID, c.Owner.Container = fmt.Sprint("pod", p.next), "main"
	}
	if p.rnd.IntN(2) == 0 {
		c.Name = fmt.Sprint("name-", p.next)
	}
	return c
}

// choose lets the allocator choose and reserves the result; what it chose, or that it chose nothing, must be right.
func (p *player) choose() string {
	r := p.request()
	state := states(p.l.GPUs(), sharing.LevelDriver)
	placement, err := allocator.Choose(state, r)
	p.rnd.Shuffle(len(state), func(i, j int) { state[i], state[j] = state[j], state[i] })
	if again, _ := allocator.Choose(state, r); !slices.Equal(placement, again) {
		p.t.Fatalf("%s: %v, and in another order %v", r, placement, again)
	}
	var fit []sharing.GPU
	for _, g := range p.n.gpus {
		if p.n.takes(g, r) {
			fit = append(fit, g)
		}
	}
	if err != nil {
		if noFit := new(allocator.NoFit); len(fit) >= r.GPUs || !errors.As(err, &noFit) {
			p.t.Fatalf("%s (%+v) is refused, and %d GPUs fit: %v", r, r, len(fit), err)
		}
		return "no fit"
	}
	if len(placement) != r.GPUs {
		p.t.Fatalf("%s gives %v", r, placement)
	}
	for _, f := range placement {
		g, ok := p.n.gpu(f.GPU)
		if !ok || !p.n.takes(g, r) || f != r.On(g) {
			p.t.Fatalf("%s gives %+v, which does not fit", r, f)
		}
		for _, other := range fit {
			if _, chosen := placement.On(other.Ref()); !chosen && r.Kind == sharing.KindShared &&
				p.n.better(other, g, r) {
				p.t.Fatalf("%s gives %+v, and gpu %q fits better", r, f, other.Ref())
			}
		}
	}
	c := p.newGrant(r, placement)
	if err := p.l.Reserve(c); err != nil {
		p.t.Fatalf("chosen and refused: %v", err)
	}
	p.n.grants = append(p.n.grants, naiveGrant{c: c})
	return "reserved"
}

// byHand reserves a placement that the allocator did not choose.
func (p *player) byHand() string {
	r := p.request()
	var placement sharing.Placement
	ok := true
	for range r.GPUs {
		id := uuid(fmt.Sprint("gpu", p.rnd.IntN(7)))
		g, known := p.n.gpu(id)
		_, twice := placement.On(id)
		f := r.On(g)
		f.GPU = id
		if p.rnd.IntN(10) == 0 {
			f.Memory++
			ok = false
		}
		r.Models, r.UUIDs = nil, nil
		ok = ok && known && !twice && p.n.takes(g, r)
		placement = append(placement, f)
	}
	c := p.newGrant(r, placement)
	if len(p.n.grants) > 0 && p.rnd.IntN(10) == 0 {
		other := p.n.grants[p.rnd.IntN(len(p.n.grants))].c
		c.ID, ok = other.ID, false
	}
	err := p.l.Reserve(c)
	if (err == nil) != ok {
		p.t.Fatalf("%+v: %v, the model says %v", c, err, ok)
	}
	if err != nil {
		return "by hand, refused"
	}
	p.n.grants = append(p.n.grants, naiveGrant{c: c})
	return "by hand, taken"
}
