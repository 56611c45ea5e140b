// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// pick returns one of the grants, or one that does not exist.
func (p *player) pick() (ledger.GrantID, *naiveGrant) {
	if len(p.n.grants) == 0 || p.rnd.IntN(50) == 0 {
		return "no-one", nil
	}
	c := &p.n.grants[p.rnd.IntN(len(p.n.grants))]
	return c.c.ID, c
}

func (p *player) expect(err error, ok bool, what string) {
	if (err == nil) != ok {
		p.t.Fatalf("%s: %v, the model says %v", what, err, ok)
	}
}

func (p *player) newAttachment(id ledger.GrantID) ledger.Attachment {
	p.next++
	return ledger.Attachment{State: ledger.Active, Cgroup: fmt.Sprintf("/kerf/%s-%d", id, p.next),
		Inode: uint64(p.next)}
}

// part is now and then a part of the placement, as an init container uses it, and now and then a wrong one.
func (p *player) part(whole sharing.Placement) (part sharing.Placement, within bool) {
	if len(whole) == 0 || p.rnd.IntN(3) > 0 {
		return nil, true
	}
	part = whole.Clone()
	for i := range part {
		if !part[i].Whole {
			part[i].Memory = max(part[i].Memory/2, 1)
			part[i].Percent /= 2
		}
	}
	if p.rnd.IntN(5) == 0 {
		part[0].Memory = whole[0].Memory + 1
	}
	return part, partOf(whole, part)
}

// partOf is written apart from the ledger's own check.
func partOf(whole, part sharing.Placement) bool {
	for _, f := range part {
		found := false
		for _, w := range whole {
			found = found || w.GPU == f.GPU && w.Whole == f.Whole && f.Memory != 0 && f.Memory <= w.Memory &&
				f.Percent <= w.Percent
		}
		if !found {
			return false
		}
	}
	return true
}

func naiveInForce(p sharing.Placement, l *ledger.Attachment) sharing.Placement {
	if len(l.Part) > 0 {
		return l.Part
	}
	return p
}

func (p *player) anyAttachment() (ledger.Attachment, bool) {
	for _, c := range p.n.grants {
		if c.active != nil {
			return *c.active, true
		}
	}
	return ledger.Attachment{}, false
}

func (p *player) end() string {
	id, c := p.pick()
	p.expect(p.l.EndAttachment(id), c != nil && c.active != nil, "end attachment of "+string(id))
	if c == nil || c.active == nil {
		return "not ended"
	}
	c.active, c.burst = nil, nil
	if c.c.Owner.PodUID == "" {
		p.forget(id)
	}
	return "ended"
}

func (p *player) release() string {
	id, c := p.pick()
	ok := c != nil && c.active == nil && !c.activating()
	used := ok && slices.ContainsFunc(p.n.sharers(c.c), func(o naiveGrant) bool { return o.active != nil })
	p.expect(p.l.Release(id), ok && !used, "release "+string(id))
	if used {
		return "not released, shared"
	}
	if !ok {
		return "not released"
	}
	p.forget(id)
	return "released"
}

// join grants a share of another grant's cap.
func (p *player) join() string {
	id, c := p.pick()
	if c == nil {
		return "not joined"
	}
	r := sharing.Request{GPUs: max(1, len(c.c.Placement))}
	if r.Memory = sharing.Bytes(r.GPUs) * sharing.Bytes(1+p.rnd.IntN(4)) * sharing.GiB; p.rnd.IntN(3) == 0 {
		r.Memory, r.Percent = 0, sharing.Percent(r.GPUs*(1+p.rnd.IntN(10)))
	}
	ok := c.c.Owner.PodUID != "" && c.c.With == "" && len(c.c.Placement) > 0
	var placement sharing.Placement
	for _, f := range c.c.Placement {
		g, known := p.n.gpu(f.GPU)
		own := r.On(g)
		own.GPU = f.GPU
		ok = ok && known && !f.Whole && f.Burst == 0 && p.n.takes(g, r)
		placement = append(placement, own)
	}
	if p.rnd.IntN(10) == 0 && len(placement) > 0 {
		placement[0].GPU = uuid(fmt.Sprint("gpu", 7)) // no node has it
		ok = false
	}
	next := p.newGrant(r, placement)
	next.With, next.Owner.PodUID, next.Owner.Container = id, c.c.Owner.PodUID, fmt.Sprint("side", p.next)
	p.expect(p.l.Reserve(next), ok, fmt.Sprintf("%+v with %+v", next, c.c))
	if !ok {
		return "not joined"
	}
	p.n.grants = append(p.n.grants, naiveGrant{c: next})
	return "joined"
}

// resize changes a grant's memory, each share to another size, which may be too much or nothing.
func (p *player) resize() string {
	id, c := p.pick()
	if c == nil {
		p.expect(p.l.Resize(id, nil), false, "resize "+string(id))
		return "not resized"
	}
	to := c.c.Placement.Clone()
	ok := true
	for i, f := range to {
		size := p.rnd.Int64N(2*int64(f.Memory)+1) + p.rnd.Int64N(int64(sharing.GiB))
		to[i].Memory = sharing.Bytes(size)
		g, known := p.n.gpu(f.GPU)
		memory, percent, grants, whole := p.n.usage(f.GPU, false)
		grows := size > int64(f.Memory)
		usable, bookable, most := amounts(g)
		after := memory - int64(f.Memory) + size
		burstNow := p.n.burstOn(f.GPU) - min(c.burst[f.GPU], max(0, size-int64(f.Memory)))
		fits := known && g.Health == sharing.HealthOK && !g.MIG && whole == 0 && grants > 0 && int64(percent) <= most &&
			size <= usable && after <= bookable && (burstNow == 0 || after+burstNow <= usable)
		ok = ok && !f.Whole && size >= int64(sharing.MiB) && (!grows || fits)
	}
	if p.rnd.IntN(20) == 0 && len(to) > 0 {
		to[0].Percent++
		ok = false
	}
	if c.active != nil && !partOf(to, c.active.Part) {
		ok = false
	}
	p.expect(p.l.Resize(id, to), ok, fmt.Sprintf("resize %s from %+v to %+v", id, c.c.Placement, to))
	if !ok {
		return "not resized"
	}
	for i, f := range to {
		if grown := int64(f.Memory) - int64(c.c.Placement[i].Memory); grown > 0 && c.burst[f.GPU] > 0 {
			c.burst[f.GPU] = max(0, c.burst[f.GPU]-grown)
		}
	}
	c.c.Placement = to
	return "resized"
}

// lend lends more or less to an attachment, now and then too much.
func (p *player) lend() string {
	id, c := p.pick()
	gpu := uuid(fmt.Sprint("gpu", p.rnd.IntN(6)))
	amount := p.rnd.Int64N(int64(8 * sharing.GiB))
	if p.rnd.IntN(4) == 0 {
		amount = 0
	}
	ok, had := false, int64(0)
	if c != nil {
		if len(c.c.Placement) > 0 && p.rnd.IntN(10) > 0 {
			gpu = c.c.Placement[p.rnd.IntN(len(c.c.Placement))].GPU
		}
		had = c.burst[gpu]
		f, on := c.c.Placement.On(gpu)
		if p.rnd.IntN(2) == 0 && most(f) > 0 {
			amount = p.rnd.Int64N(most(f) + 1)
		}
		g, known := p.n.gpu(gpu)
		memory, percent, grants, whole := p.n.usage(gpu, false)
		usable, _, mostPercent := amounts(g)
		fits := known && g.Health == sharing.HealthOK && !g.MIG && whole == 0 && grants > 0 &&
			int64(percent) <= mostPercent && c.active != nil &&
			len(c.active.Part) == 0 && amount <= most(f) && memory+p.n.burstOn(gpu)-had+amount <= usable
		ok = on && (amount <= had || fits)
	}
	p.expect(p.l.SetBurst(id, gpu, sharing.Bytes(amount)), ok, fmt.Sprintf("lend %d to %s on %s", amount, id, gpu))
	switch {
	case !ok:
		return "no burst"
	case c.burst == nil:
		c.burst = map[sharing.GPURef]int64{}
	}
	c.burst[gpu] = amount
	if amount > had {
		return "burst"
	}
	return "taken back"
}

func (p *player) forget(id ledger.GrantID) {
	i := p.n.find(id)
	p.n.grants = slices.Delete(p.n.grants, i, i+1)
}

// restore brings in a fact that may not fit.
func (p *player) restore() string {
	var placement sharing.Placement
	for i := range 6 {
		if p.rnd.IntN(6) == 0 {
			f := sharing.Share{
				Burst: sharing.Bytes(p.rnd.IntN(2)) * sharing.Bytes(p.rnd.Int64N(int64(8*sharing.GiB))),
				GPU:   uuid(fmt.Sprint("gpu", i)), Memory: sharing.Bytes(p.rnd.Int64N(int64(4 * sharing.GiB))),
				Percent: sharing.Percent(p.rnd.IntN(20)), Whole: p.rnd.IntN(20) == 0,
			}
			if p.rnd.IntN(4) == 0 {
				f.Memory *= 20
			}
			placement = append(placement, f)
		}
	}
	c := p.newGrant(sharing.Request{}, placement)
	c.Recovered = true
	active := p.newAttachment(c.ID)
	if err := p.l.Restore(c, &active); err != nil {
		p.t.Fatalf("a fact is refused: %v", err)
	}
	p.n.grants = append(p.n.grants, naiveGrant{c: c, active: &active})
	p.n.grants[len(p.n.grants)-1].assumeAll()
	for _, f := range placement {
		if g, known := p.n.gpu(f.GPU); known && p.n.overbooked(g) {
			return "overbooked"
		}
	}
	return "restored"
}

func (p *player) health() string {
	id := uuid(fmt.Sprint("gpu", p.rnd.IntN(7)))
	h := sharing.HealthOK
	if p.rnd.IntN(4) == 0 {
		h = sharing.Health(p.rnd.IntN(5))
	}
	_, known := p.n.gpu(id)
	err := p.l.SetHealth(id, h, "the test says so")
	p.expect(err, known, "set health")
	for i := range p.n.gpus {
		if p.n.gpus[i].Ref() == id {
			p.n.gpus[i].Health = h
		}
	}
	return "health"
}

// inventory sets up to six GPUs; most are as always, some are gone, shrunk, in MIG mode or overcommitted.
func (p *player) inventory() {
	p.n.gpus = nil
	for i := range 6 {
		g := sharing.GPU{UUID: uuid(fmt.Sprint("gpu", i)).UUID, Index: i, Model: "NVIDIA H100",
			Memory: 80 * sharing.GiB, Reserved: 500 * sharing.MiB, Hardware: sharing.Hardware{NUMA: i / 3},
			Health: sharing.HealthOK}
		if i >= 4 {
			g.Model, g.Memory = "Tesla T4", 15*sharing.GiB+7
		}
		if p.rnd.IntN(3) == 0 {
			g.Overcommit = sharing.Overcommit{Memory: sharing.Factor(100 + p.rnd.IntN(101)),
				Compute: sharing.Factor(100 * p.rnd.IntN(6))}
		}
		switch p.rnd.IntN(20) {
		case 0:
			continue
		case 1:
			g.Memory /= 2
		case 2:
			g.MIG = true
		}
		p.n.gpus = append(p.n.gpus, g)
	}
	if err := p.l.SetInventory(p.n.gpus); err != nil {
		p.t.Fatal(err)
	}
	// Nothing half-done: one that is refused leaves all as it is, which compare then sees.
	if err := p.l.SetInventory([]sharing.GPU{{UUID: "x", Memory: 1}, {UUID: "x", Memory: 1}}); !errors.Is(err,
		sharing.ErrInvalid) {
		p.t.Fatalf("an inventory with a GPU twice: %v", err)
	}
}

// restart builds a new ledger from what the old one says, in any order, with the inventory before or after.
func (p *player) restart() string {
	grants := p.l.Grants()
	p.rnd.Shuffle(len(grants), func(i, j int) { grants[i], grants[j] = grants[j], grants[i] })
	p.l = ledger.New()
	first := p.rnd.IntN(2) == 0
	if first {
		p.expect(p.l.SetInventory(p.n.gpus), true, "inventory")
	}
	for _, g := range grants {
		p.expect(p.l.Restore(g.Reservation, g.Active), true, "restore")
	}
	for i := range p.n.grants {
		c := &p.n.grants[i]
		c.assumeAll()
		c.next, c.work, c.withdrawn = nil, ledger.NoWork, ledger.NotWithdrawn
		if c.active != nil {
			c.active.State = ledger.Active
		}
	}
	if !first {
		p.expect(p.l.SetInventory(p.n.gpus), true, "inventory")
	}
	return "restart"
}

// compare looks for a difference between the ledger and the model.
func (p *player) compare() error {
	if got := p.l.Grants(); len(got) != len(p.n.grants) {
		return fmt.Errorf("%d grants, the model has %d", len(got), len(p.n.grants))
	}
	for _, want := range p.n.grants {
		got, ok := p.l.Get(want.c.ID)
		if !ok || !slices.Equal(got.Placement, want.c.Placement) || got.Owner != want.c.Owner ||
			got.Name != want.c.Name {
			return fmt.Errorf("grant %q is %+v, want %+v", want.c.ID, got, want.c)
		}
		if err := compareLife(got, want); err != nil {
			return err
		}
		for _, f := range want.c.Placement {
			caps, active := got.Caps().On(f.GPU)
			if others := p.n.sharers(want.c); len(others) > 0 {
				if sum := p.n.together(want.c, f.GPU); active != (want.active != nil) || active &&
					int64(caps.Memory) != sum {
					return fmt.Errorf("grant %q may use %+v of gpu %q together with %d others, want %d", want.c.ID,
						caps, f.GPU, len(others), sum)
				}
				continue
			}
			if int64(got.Burst[f.GPU]) != want.burst[f.GPU] || active && len(got.Active.Part) == 0 &&
				int64(caps.Memory) != int64(f.Memory)+want.burst[f.GPU] {
				return fmt.Errorf("grant %q has burst memory %v, want %v; its cap is %+v", want.c.ID, got.Burst,
					want.burst, caps)
			}
		}
	}
	for _, v := range p.l.GPUs() {
		memory, percent, grants, whole := p.n.usage(v.GPU.Ref(), false)
		active, _, _, _ := p.n.usage(v.GPU.Ref(), true)
		burstNow := p.n.burstOn(v.GPU.Ref())
		same := memory == int64(v.GrantedMemory) && burstNow == int64(v.BurstMemory) &&
			active == int64(v.ActiveMemory) &&
			percent == int(v.GrantedPercent) && grants == v.Grants && (whole > 0) == v.Whole
		g, known := p.n.gpu(v.GPU.Ref())
		over := known && p.n.overbooked(g)
		var freeMemory sharing.Bytes
		freePercent := 0
		if known && g.Health == sharing.HealthOK && !g.MIG && whole == 0 && !over {
			_, _, most := amounts(g)
			freeMemory, freePercent = sharing.Bytes(max(0, p.n.free(g, memory))), int(most)-percent
		}
		if !same || over != v.Overbooked || freeMemory != v.FreeMemory || freePercent != int(v.FreePercent) {
			return fmt.Errorf("gpu %q is %+v, the model has %d bytes, %d%%, %d grants, %d whole, %d and %d%% free",
				v.GPU.Ref(), v, memory, percent, grants, whole, freeMemory, freePercent)
		}
	}
	for _, g := range p.n.gpus {
		if _, ok := p.l.GPU(g.Ref()); !ok {
			return fmt.Errorf("gpu %q is missing", g.Ref())
		}
	}
	return nil
}
