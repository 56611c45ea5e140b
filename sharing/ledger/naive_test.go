// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"math/big"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// naive is the plainest possible ledger: a list of GPUs and a list of grants. It answers every question by adding up.
// It shares no arithmetic with the ledger: signed, and below 2^63 in these tests.
type naive struct {
	gpus   []sharing.GPU // the last inventory
	grants []naiveGrant
}

type naiveGrant struct {
	c      ledger.Reservation
	active *ledger.Attachment
	// next, work and withdrawn are as in ledger.Grant.
	next      *ledger.Attachment
	work      ledger.Work
	withdrawn ledger.Withdrawal
	// burst is its burst memory by GPU.
	burst map[sharing.GPURef]int64
}

// most is the maximum burst memory of a grant.
func most(f sharing.Share) int64 { return max(0, int64(f.Burst)-int64(f.Memory)) }

// assumeAll sets the burst memory that a grant counts while the real amount is unknown.
func (c *naiveGrant) assumeAll() {
	c.burst = map[sharing.GPURef]int64{}
	if c.active == nil || len(c.active.Part) > 0 {
		return
	}
	for _, f := range c.c.Placement {
		c.burst[f.GPU] = most(f)
	}
}

// sharers are the others that share a cap with a grant.
func (n *naive) sharers(c ledger.Reservation) (out []naiveGrant) {
	root := func(c ledger.Reservation) ledger.GrantID {
		if c.With != "" {
			return c.With
		}
		return c.ID
	}
	for _, o := range n.grants {
		if o.c.ID != c.ID && root(o.c) == root(c) {
			out = append(out, o)
		}
	}
	return out
}

// together adds up what a grant and those that share its cap have of a GPU.
func (n *naive) together(c ledger.Reservation, id sharing.GPURef) (sum int64) {
	for _, o := range append(n.sharers(c), naiveGrant{c: c}) {
		for _, f := range o.c.Placement {
			if f.GPU == id {
				sum += int64(f.Memory)
			}
		}
	}
	return sum
}

// burstOn adds up the burst memory on a GPU.
func (n *naive) burstOn(id sharing.GPURef) (sum int64) {
	for _, c := range n.grants {
		sum += c.burst[id]
	}
	return sum
}

func (n *naive) gpu(id sharing.GPURef) (sharing.GPU, bool) {
	for _, g := range n.gpus {
		if g.Ref() == id {
			return g, true
		}
	}
	return sharing.GPU{}, false
}

func (n *naive) find(id ledger.GrantID) int {
	return slices.IndexFunc(n.grants, func(c naiveGrant) bool { return c.c.ID == id })
}

// usage adds up what is on a GPU; onlyActive leaves out what is only reserved.
func (n *naive) usage(id sharing.GPURef, onlyActive bool) (memory int64, percent, grants, whole int) {
	for _, c := range n.grants {
		if onlyActive && c.active == nil {
			continue
		}
		counts := c.c.Placement
		if onlyActive {
			counts = naiveInForce(c.c.Placement, c.active)
		}
		for _, f := range counts {
			if f.GPU != id {
				continue
			}
			memory += int64(f.Memory)
			percent += int(f.Percent)
			grants++
			if f.Whole {
				whole++
			}
		}
	}
	return memory, percent, grants, whole
}

// amounts are the amounts of a GPU, and what its shares may have together: outside of MIG mode, as often as it is
// overcommitted.
func amounts(g sharing.GPU) (usable, bookable, percent int64) {
	usable = int64(g.Memory) - int64(g.Reserved)
	bookable, percent = usable, 100
	if f := int64(g.Overcommit.Memory); f > 100 && !g.MIG {
		hundredths := new(big.Int).Mul(big.NewInt(usable), big.NewInt(f))
		bookable = max(usable, new(big.Int).Div(hundredths, big.NewInt(100<<20)).Int64()<<20)
	}
	if f := int64(g.Overcommit.Compute); f > 100 && !g.MIG {
		percent = f
	}
	return usable, bookable, percent
}

// free is the memory that can be reserved in addition to held. Overcommitted memory gives no burst memory.
func (n *naive) free(g sharing.GPU, held int64) int64 {
	usable, bookable, _ := amounts(g)
	if burstNow := n.burstOn(g.Ref()); burstNow > 0 {
		return usable - held - burstNow
	}
	return bookable - held
}

// room reports whether f fits in addition to what is on the GPU.
func (n *naive) room(g sharing.GPU, f sharing.Share, onlyActive bool) bool {
	memory, percent, grants, whole := n.usage(g.Ref(), onlyActive)
	usable, _, most := amounts(g)
	if int64(f.Memory) > min(usable, n.free(g, memory)) || int64(percent)+int64(f.Percent) > most {
		return false
	}
	return whole == 0 && (!f.Whole || grants == 0)
}

// takes reports whether the GPU could take the request's share now.
func (n *naive) takes(g sharing.GPU, r sharing.Request) bool {
	f := r.On(g)
	return g.Health == sharing.HealthOK && !g.MIG && r.Admits(g) && f.Memory >= sharing.MiB && n.room(g, f, false)
}

// left is the part of the GPU's memory plus the part of its compute that stays free after the share.
func (n *naive) left(g sharing.GPU, f sharing.Share) *big.Rat {
	memory, percent, _, _ := n.usage(g.Ref(), false)
	_, bookable, most := amounts(g)
	sum := big.NewRat(n.free(g, memory)-int64(f.Memory), bookable)
	return sum.Add(sum, big.NewRat(most-int64(percent)-int64(f.Percent), most))
}

// better reports whether the share of r fits GPU a clearly better than b, by the stated preference.
func (n *naive) better(a, b sharing.GPU, r sharing.Request) bool {
	_, _, onA, _ := n.usage(a.Ref(), false)
	_, _, onB, _ := n.usage(b.Ref(), false)
	spread := r.Place == sharing.PlaceSpread
	if (onA > 0) != (onB > 0) {
		return (onA > 0) != spread
	}
	difference := new(big.Rat).Sub(n.left(b, r.On(b)), n.left(a, r.On(a)))
	if spread {
		difference.Neg(difference)
	}
	// The allocator reckons in 2^-32 and rounds twice.
	return difference.Cmp(big.NewRat(1, 1<<31)) > 0
}

// overbooked reports whether more is on a GPU of the inventory than it has.
func (n *naive) overbooked(g sharing.GPU) bool {
	memory, percent, grants, whole := n.usage(g.Ref(), false)
	_, bookable, most := amounts(g)
	return memory > bookable || int64(percent) > most || whole > 0 && grants > 1
}
