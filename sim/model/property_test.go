// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

var steps = flag.Int("steps", 10_000, "random steps of the property test")

// block is memory in use, in a model so plain that its correctness is visible: nothing is counted, and each sum is
// computed from the list of blocks.
type block struct {
	client  ClientID
	gpu     int
	part    int
	bytes   sharing.Bytes
	isCtx   bool
	id      uint64 // context id or address
	context uint64
	limits  []int // serial numbers of the limits that count it
}

type plainLimit struct {
	serial, gpu int
	group       Group
	hard        sharing.Bytes
}

// plain is the naive model.
type plain struct {
	mach    machine.Machine
	clients map[ClientID]int // to gpu
	blocks  []block
	limits  []plainLimit
	serial  int
	lost    map[int]bool
}

func (n *plain) used(count func(block) bool) (sum sharing.Bytes) {
	for _, p := range n.blocks {
		if count(p) {
			sum += p.bytes
		}
	}
	return sum
}

func (n *plain) limitUse(serial int) sharing.Bytes {
	return n.used(func(p block) bool {
		return slices.Contains(p.limits, serial)
	})
}

func (n *plain) limitOn(gpu int, g Group) *plainLimit {
	for i, l := range n.limits {
		if l.gpu == gpu && l.group.ID == g.ID {
			return &n.limits[i]
		}
	}
	return nil
}

// take says whether the block fits and which limits count it.
func (n *plain) take(p block, chain Chain) (block, bool) {
	hw := n.mach.GPUs[p.gpu]
	room := hw.Model.Memory - hw.Model.Reserved
	if hw.MIG {
		room = hw.Instances[p.part].Profile.Memory
	}
	if n.used(func(q block) bool { return q.gpu == p.gpu && q.part == p.part })+p.bytes > room {
		return p, false
	}
	for _, g := range chain {
		l := n.limitOn(p.gpu, g)
		if l == nil {
			continue
		}
		if n.limitUse(l.serial)+p.bytes > l.hard {
			return p, false
		}
		p.limits = append(p.limits, l.serial)
		if n.mach.Memacct == machine.Misc {
			break
		}
	}
	return p, true
}

func (n *plain) remove(gone func(block) bool) int {
	var kept []block
	for _, p := range n.blocks {
		if !gone(p) {
			kept = append(kept, p)
		}
	}
	removed := len(n.blocks) - len(kept)
	n.blocks = kept
	return removed
}

const testMachineFile = `
name: small
memacct: %s
models:
  tiny: {name: Tiny, architecture: hopper, brand: nvidia, compute_capability: "9.0", memory_mib: 100, reserved_mib: 10, context_mib: 5, sms: 4, max_threads_per_sm: 1024,
    mig: {max_devices: 2, compute_slices: 2, memory_slices: 2, profiles: [{name: 1g.1gb, index: 0, id: 1, slices: 1, memory_mib: 40, sms: 2, size: 1, starts: [0, 1], max: 2}]}}
gpus:
  - {model: tiny}
  - {model: tiny, mig: {instances: [{profile: 1g.1gb, start: 0}, {profile: 1g.1gb, start: 1}]}}
`

func TestModelAgainstNaiveOne(t *testing.T) {
	for _, acct := range []machine.Memacct{machine.Dmem, machine.Misc} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s/%d", acct, seed), func(t *testing.T) {
				mach, err := machine.Parse("small", fmt.Appendf(nil, testMachineFile, acct), []byte("models: {}"))
				if err != nil {
					t.Fatal(err)
				}
				r := &runner{
					t: t, rand: rand.New(rand.NewPCG(seed, 7)), done: map[string]int{},
					m:     New(mach, testDriver(t, "r615")),
					naive: plain{mach: mach, clients: map[ClientID]int{}, lost: map[int]bool{}},
				}
				for range *steps / 2 {
					r.step()
					r.compare()
				}
				whats := []string{"ok", "out of memory", "gpu is lost", "not found", "invalid argument",
					"not supported", "limit", "freed", "closed", "context gone"}
				if acct == machine.Misc {
					whats = append(whats, "invalid limit")
				}
				for _, what := range whats {
					if *steps >= 10_000 && r.done[what] == 0 {
						t.Errorf("%q never happened in %v", what, r.done)
					}
				}
			})
		}
	}
}

// runner does the same to both models.
type runner struct {
	t     *testing.T
	rand  *rand.Rand
	m     *Model
	naive plain
	done  map[string]int
}

func (r *runner) chain() Chain { return []Chain{nil, inA, inB, inC, inD}[r.rand.IntN(5)] }

func (r *runner) anyClient() (ClientID, int) {
	ids := slices.Sorted(maps.Keys(r.naive.clients))
	if len(ids) == 0 {
		return 0, 0
	}
	id := ids[r.rand.IntN(len(ids))]
	return id, r.naive.clients[id]
}

// note wants an outcome and counts it.
func (r *runner) note(err, want error) {
	r.t.Helper()
	wantErr(r.t, err, want)
	if err == nil {
		r.done["ok"]++
		return
	}
	r.done[err.Error()]++
}

func (r *runner) step() {
	n := &r.naive
	switch r.rand.IntN(20) {
	case 0:
		if len(n.clients) >= 12 {
			return
		}
		gpu := r.rand.IntN(2)
		id, err := r.m.Open(gpu, 100+r.rand.IntN(3))
		r.note(err, nil)
		n.clients[id] = gpu
	case 1:
		id, gpu := r.anyClient()
		r.m.Close(id, 0)
		delete(n.clients, id)
		n.remove(func(p block) bool { return p.client == id && p.gpu == gpu })
		r.done["closed"]++
	case 2, 3:
		r.take(true)
	case 4, 5, 6, 7, 8, 9, 10, 11, 12:
		r.take(false)
	case 13, 14, 15:
		r.free()
	case 16, 17, 18:
		r.limit()
	case 19:
		gpu, lost := r.rand.IntN(2), r.rand.IntN(6) == 0
		r.note(r.m.Apply([]int{gpu}, Change{Lost: &lost}, 0), nil)
		if !lost && n.lost[gpu] {
			r.recreate(gpu)
		}
		n.lost[gpu] = lost
		if lost {
			n.remove(func(p block) bool { return p.gpu == gpu })
		}
	}
}

// take makes a context or an allocation.
func (r *runner) take(context bool) {
	n := &r.naive
	id, gpu := r.anyClient()
	p := block{client: id, gpu: gpu, isCtx: context, bytes: sharing.Bytes(r.rand.IntN(30)+1) * mib}
	chain := r.chain()
	var want error
	switch {
	case id == 0:
		want = wire.NotFound
	case n.lost[gpu]:
		want = wire.Lost
	}
	var instance uint64
	if context {
		p.bytes = n.mach.GPUs[gpu].Model.Context
		instance = uint64(max(0, r.rand.IntN(6)-2))
		if instance > 0 {
			p.part = int(instance - 1)
		}
		if want == nil && (instance == 3 || instance > 0 && !n.mach.GPUs[gpu].MIG) {
			want = wire.NotFound
		}
	} else {
		p.context = uint64(1 << 40) // no such context
		for _, q := range n.blocks {
			if q.client == id && q.isCtx {
				p.context, p.part = q.id, q.part
			}
		}
		if want == nil && p.context == 1<<40 {
			want = wire.NotFound
		}
	}
	if want == nil {
		var fits bool
		if p, fits = n.take(p, chain); !fits {
			want = wire.OutOfMemory
		}
	}
	var err error
	if context {
		p.id, err = r.m.CreateContext(id, instance, chain)
	} else {
		p.id, err = r.m.Alloc(id, p.bytes, p.context, wire.KindLinear, chain)
	}
	r.note(err, want)
	if err == nil {
		for _, q := range n.blocks {
			if q.id == p.id {
				r.t.Fatalf("%x is given out twice", p.id)
			}
		}
		n.blocks = append(n.blocks, p)
	}
}

// recreate creates the instances of a GPU again, which it has lost with the bus.
func (r *runner) recreate(gpu int) {
	for _, in := range r.naive.mach.GPUs[gpu].Instances {
		gi, err := r.m.CreateGI(gpu, true, in.Profile.ID, in.Start)
		if err == nil {
			_, err = r.m.CreateCI(gpu, true, gi, Whole, AnyStart)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *runner) free() {
	n := &r.naive
	if len(n.blocks) == 0 {
		r.note(r.m.Free(1<<50, 1), wire.NotFound)
		return
	}
	p := n.blocks[r.rand.IntN(len(n.blocks))]
	if !p.isCtx {
		r.note(r.m.Free(p.client, p.id), nil)
		n.remove(func(q block) bool { return q.id == p.id })
		r.done["freed"]++
		return
	}
	if r.rand.IntN(12) > 0 {
		return
	}
	r.note(r.m.DestroyContext(p.client, p.id), nil)
	n.remove(func(q block) bool { return q.id == p.id || q.client == p.client && !q.isCtx && q.context == p.id })
	r.done["context gone"]++
}

func (r *runner) limit() {
	n := &r.naive
	gpu, chain := r.rand.IntN(2), r.chain()
	hard := sharing.Bytes(r.rand.IntN(110)+1) * mib // some more than there is
	if r.rand.IntN(3) == 0 {
		hard = NoLimit
	}
	err := r.m.SetLimit(gpu, true, chain, 0, hard)
	var want error
	var l *plainLimit
	if len(chain) > 0 {
		l = n.limitOn(gpu, chain[0])
	}
	switch {
	case n.lost[gpu]:
		want = wire.Lost
	case n.mach.GPUs[gpu].MIG:
		want = wire.NotSupported
	case hard > n.mach.GPUs[gpu].Model.Memory && hard != NoLimit:
		want = wire.Invalid
	case len(chain) == 0:
		want = wire.NotSupported
	case n.mach.Memacct == machine.Misc && l != nil && hard < n.limitUse(l.serial):
		want = wire.InvalidLimit
	}
	r.note(err, want)
	if err != nil {
		return
	}
	r.done["limit"]++
	switch {
	case hard == NoLimit && n.mach.Memacct == machine.Dmem:
		var kept []plainLimit
		for _, k := range n.limits {
			if l == nil || k.serial != l.serial {
				kept = append(kept, k)
			}
		}
		n.limits = kept
	case l != nil:
		l.hard = hard
	default:
		n.serial++
		n.limits = append(n.limits, plainLimit{serial: n.serial, gpu: gpu, group: chain[0], hard: hard})
	}
}

// compare wants the same memory, processes and limits in both.
func (r *runner) compare() {
	n := &r.naive
	for gpu := range n.mach.GPUs {
		if n.lost[gpu] {
			continue
		}
		mem, err := r.m.Memory(gpu, nil)
		want := n.used(func(p block) bool { return p.gpu == gpu })
		if err != nil || mem.Used != want || mem.Total != mem.Reserved+mem.Free+mem.Used {
			r.t.Fatalf("gpu %d: %+v, %v; want %d used", gpu, mem, err, want)
		}
		procs, err := r.m.Processes(gpu)
		wantErr(r.t, err, nil)
		var sum sharing.Bytes
		for _, p := range procs {
			sum += p.Bytes
		}
		if sum != want {
			r.t.Fatalf("gpu %d: processes hold %d in all, want %d", gpu, sum, want)
		}
	}
	var want []Limit
	for gpu := range n.mach.GPUs {
		for _, chain := range []Chain{inA, inB, inC, inD} {
			l := n.limitOn(gpu, chain[0])
			r.compareGetLimit(gpu, chain, l)
			if l != nil && l.hard != NoLimit {
				want = append(want, Limit{GPU: gpu, Group: l.group, Hard: l.hard, Used: n.limitUse(l.serial)})
			}
		}
	}
	if d := cmp.Diff(want, r.m.Limits()); d != "" {
		r.t.Fatalf("limits (-want +got):\n%s", d)
	}
}

// compareGetLimit wants the same answer for a group, which has the limit own, nil for none.
func (r *runner) compareGetLimit(gpu int, chain Chain, own *plainLimit) {
	n := &r.naive
	for _, g := range chain[1:] {
		if own == nil && n.mach.Memacct == machine.Misc {
			own = n.limitOn(gpu, g)
		}
	}
	got, err := r.m.GetLimit(gpu, chain)
	switch {
	case n.lost[gpu]:
		wantErr(r.t, err, wire.Lost)
	case n.mach.GPUs[gpu].MIG:
		wantErr(r.t, err, wire.NotSupported)
	case own == nil:
		wantErr(r.t, err, wire.NotFound)
	default:
		wantErr(r.t, err, nil)
		if want := (Limit{GPU: gpu, Group: own.group, Hard: own.hard, Used: n.limitUse(own.serial)}); got != want {
			r.t.Fatalf("limit of %v: %+v, want %+v", chain[0], got, want)
		}
	}
}
