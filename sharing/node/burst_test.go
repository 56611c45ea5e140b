// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// bursting is a request that is guaranteed so many GiB of the first GPU, and may burst to 40.
func (b *bench) bursting(n int) sharing.Request {
	r := gib(n)
	r.Profile, r.UUIDs = "burst", []sharing.GPUID{b.gpus[0].UUID}
	return r
}

// plainly is a request for so many GiB of the first GPU.
func (b *bench) plainly(n int) sharing.Request {
	r := gib(n)
	r.UUIDs = []sharing.GPUID{b.gpus[0].UUID}
	return r
}

// newBurstBench has a profile "burst": up to 30 GiB guaranteed, and 40 GiB while no grant needs them.
func newBurstBench(t testing.TB, pool config.Pool) *bench {
	t.Helper()
	b := newPodBench(t)
	pool.Name = "default"
	conf, err := config.New(config.Spec{
		Pools: []config.Pool{pool},
		Profiles: []config.Profile{{Name: "burst", Memory: 30 * sharing.GiB,
			Burst: sharing.Burst{Memory: 40 * sharing.GiB}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.opt.Config, b.opt.Pool = conf, pool
	return b
}

// capped requires the caps of the grants on the first GPU, and that the ledger has the same.
func (b *bench) capped(want map[ledger.GrantID]int) {
	b.t.Helper()
	gpu := b.gpus[0].Ref()
	for id, n := range want {
		g, _ := b.Store.Get(id)
		f, _ := g.Caps().On(gpu)
		if got := b.inForce(id, gpu); got != sharing.Bytes(n)*sharing.GiB || f.Memory != got {
			b.t.Errorf("%s: %s enforced and %s booked, want %dGiB", id, got, f.Memory, n)
		}
	}
	b.consistent()
}

// uses says what the attachment's processes hold of each of its GPUs.
func (b *bench) uses(id ledger.GrantID, n int) {
	g, _ := b.Store.Get(id)
	b.caps.set(func() {
		if b.caps.by == nil {
			b.caps.by = map[string]sharing.Bytes{}
		}
		b.caps.by[g.Active.Cgroup] = sharing.Bytes(n) * sharing.GiB
	})
}

// later lets so much time pass for loans that no grant is waited for any more.
func (b *bench) later() {
	now := b.loans.Now
	b.loans.Now = func() time.Time { return now().Add(time.Hour) }
}

func TestABurst(t *testing.T) {
	b := newBurstBench(t, config.Pool{})
	b.still()
	p := b.tenant()
	one := b.activate(p, "", b.bursting(10)).ID
	b.capped(map[ledger.GrantID]int{one: 10})
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{one: 40})

	// A second one: 49 GiB are free, and evenly divided as far as each may have them. What the first does not use
	// it shares.
	two := b.activate(b.tenant(), "", b.bursting(20)).ID
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{one: 39, two: 40})
	three := b.activate(b.tenant(), "", b.plainly(9)).ID
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{one: 30, two: 40, three: 9})

	// The guarantee is reserved: what is idle is given up at once, most idle first, and no more than is needed.
	four := b.activate(b.tenant(), "", b.plainly(15)).ID
	b.capped(map[ledger.GrantID]int{one: 15, two: 40, four: 15})
	// Memory that is free again becomes burst memory again.
	p.end()
	b.Reconcile(t.Context())
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{two: 40, four: 15})
}

// An active grant that uses its burst memory keeps it, and the new grant does not fit until the memory is back.
func TestAGrantWaitsForLentMemoryInUse(t *testing.T) {
	for name, strict := range map[string]bool{"the driver refuses a cap below the use": true,
		"the driver takes it": false} {
		t.Run(name, func(t *testing.T) {
			b := newBurstBench(t, config.Pool{})
			b.still()
			b.caps.strict = strict
			one := b.activate(b.tenant(), "", b.bursting(10)).ID
			b.loans.Balance(t.Context())
			b.uses(one, 35)
			late := b.tenant()
			_, err := b.Reserve(t.Context(), late.Peer, "", b.plainly(60))
			refused(t, err, sharing.ErrExhausted, "44GiB free of 79GiB", "25GiB used as burst memory",
				"60GiB requested")
			b.capped(map[ledger.GrantID]int{one: 35}) // what was idle came back
			// While the request waits, no burst memory is given, and what becomes idle is taken back.
			b.loans.Balance(t.Context())
			b.capped(map[ledger.GrantID]int{one: 35})
			b.uses(one, 15)
			b.loans.Balance(t.Context())
			b.capped(map[ledger.GrantID]int{one: 15})
			two := b.activate(late, "", b.plainly(60)).ID
			b.capped(map[ledger.GrantID]int{one: 15, two: 60})
			// Later, free memory becomes burst memory again.
			b.later()
			b.loans.Balance(t.Context())
			b.capped(map[ledger.GrantID]int{one: 19, two: 60})
		})
	}
}

// A request that finds burst memory in use on one GPU gets another GPU.
func TestAGrantPassesByLentMemoryInUse(t *testing.T) {
	b := newBurstBench(t, config.Pool{})
	b.still()
	var ids []ledger.GrantID
	for i := range b.gpus {
		r := b.bursting(30)
		r.UUIDs = []sharing.GPUID{b.gpus[i].UUID}
		ids = append(ids, b.activate(b.tenant(), "", r).ID)
	}
	b.loans.Balance(t.Context())
	b.uses(ids[0], 40)
	b.uses(ids[1], 40)
	a := b.activate(b.tenant(), "", gib(45))
	if a.Own[0].Ref() != b.gpus[2].Ref() {
		t.Errorf("it is on %+v", a.Own)
	}
}

// A sick GPU has no burst memory. A grant of an init container gets none, and neither does one that cannot be capped.
func TestWhatIsNotLent(t *testing.T) {
	b := newBurstBench(t, config.Pool{})
	b.still()
	one := b.activate(b.tenant(), "", b.bursting(10)).ID
	b.SetHealth(b.gpus[0].UUID, sharing.HealthUnhealthy, "XID 79")
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{one: 10})
	b.SetHealth(b.gpus[0].UUID, sharing.HealthOK, "")
	b.caps.set(func() { b.caps.fail = sharing.ErrUnavailable })
	b.loans.Balance(t.Context())
	b.caps.set(func() { b.caps.fail = nil })
	b.capped(map[ledger.GrantID]int{one: 10})
	b.Detach("gone")
	b.loans.Balance(t.Context())
	b.attach()
	b.capped(map[ledger.GrantID]int{one: 10})

	main, first := b.app("a", "gpu-memory-gib:10"), b.initc("a", "first", "gpu-memory-gib:4")
	main.Request.Profile = "burst"
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{main, first}); err != nil {
		t.Fatal(err)
	}
	c := b.run(first)
	gpu := b.grant(main).Placement[0].GPU
	b.loans.Balance(t.Context())
	c.limits(map[sharing.GPURef]sharing.Bytes{gpu: 4 * sharing.GiB})
	c.remove()
	b.Reconcile(t.Context())
	c = b.run(main)
	b.loans.Balance(t.Context())
	c.limits(map[sharing.GPURef]sharing.Bytes{gpu: 39*sharing.GiB + 512*sharing.MiB})
}

// Pods take back burst memory, as processes do: all containers of a pod together.
func TestAPodGrantsWhatIsLent(t *testing.T) {
	b := newBurstBench(t, config.Pool{})
	b.gpus = b.gpus[:1]
	b.still()
	one, two := b.activate(b.tenant(), "", b.bursting(10)).ID, b.activate(b.tenant(), "", b.bursting(10)).ID
	b.loans.Balance(t.Context())
	if a, b := b.inForce(one, b.gpus[0].Ref()), b.inForce(two, b.gpus[0].Ref()); a+b != 79*sharing.GiB {
		t.Errorf("%s and %s are enforced, want all of the GPU", a, b)
	}
	side, main := b.ask("a", "side", sharing.ContainerSidecar, "gpu-memory-gib:20"), b.app("a", "gpu-memory-gib:20")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{b.initc("a", "first", "gpu-memory-gib:15"), main,
		side}); err != nil {
		t.Fatal(err)
	}
	// If the grant was lost with the agent, the container gets a new grant when it is created.
	b.still()
	b.loans.Balance(t.Context())
	b.run(side)
	b.run(main)
	b.check()
}

func TestLimitAndBurst(t *testing.T) {
	b := newBurstBench(t, config.Pool{})
	b.still()
	p := b.tenant()
	one, two := b.activate(b.tenant(), "", b.bursting(10)).ID, b.activate(p, "", b.bursting(20)).ID
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{one: 39, two: 40})
	// To turn burst memory into guaranteed memory changes no cap, also while it is used.
	b.uses(one, 39)
	if err := b.Limit(t.Context(), as(root), one, 25*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	b.capped(map[ledger.GrantID]int{one: 39, two: 40})
	// To grow past it takes back from the other what is idle.
	if err := b.Limit(t.Context(), as(root), one, 45*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	b.capped(map[ledger.GrantID]int{one: 45, two: 34})
	b.uses(two, 34)
	refused(t, b.Limit(t.Context(), as(root), one, 50*sharing.GiB), sharing.ErrExhausted, "14GiB used as burst memory")
	b.capped(map[ledger.GrantID]int{one: 45, two: 34})
	// It gives back, and if it cannot grow, it gets its burst memory back.
	b.uses(one, 0)
	if err := b.Limit(t.Context(), as(root), one, 10*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{one: 10, two: 34}) // a grant waits still
	b.later()
	b.loans.Balance(t.Context())
	b.capped(map[ledger.GrantID]int{one: 39, two: 40})
	p.end()
	b.uses(two, 0)
	b.Reconcile(t.Context())
	b.loans.Balance(t.Context())
	b.caps.set(func() { b.caps.fail = sharing.ErrUnavailable })
	refused(t, b.Limit(t.Context(), as(root), one, 45*sharing.GiB), sharing.ErrUnavailable)
	b.caps.set(func() { b.caps.fail = nil })
	b.capped(map[ledger.GrantID]int{one: 40})
}

// After a restart the driver's limit shows a grant's burst memory, wherever the agent died.
func TestLoansOverARestart(t *testing.T) {
	for _, point := range []string{"", "lend-after-book", "lend-after-cap"} {
		for _, back := range []bool{false, true} {
			t.Run(point+map[bool]string{true: " back"}[back], func(t *testing.T) {
				b := newBurstBench(t, config.Pool{})
				b.still()
				one := b.activate(b.tenant(), "", b.bursting(10)).ID
				before, after := 10, 40
				do := func() { b.loans.Balance(t.Context()) }
				if back {
					do()
					before, after = 40, 19
					do = func() { _, _ = b.Reserve(t.Context(), b.tenant().Peer, "", b.plainly(60)) }
				}
				want := before
				switch point {
				case "":
					do()
					b.still()
					want = after
				case "lend-after-cap":
					want = after
					b.crash(point, do)
				default:
					b.crash(point, do)
				}
				b.capped(map[ledger.GrantID]int{one: want})
			})
		}
	}
}

// Without a driver that limits, a grant that uses its burst memory is not acted on until the memory is taken back.
func TestABurstThatIsWatched(t *testing.T) {
	g := newGuarded(t, killing)
	conf, err := config.New(config.Spec{
		Pools: []config.Pool{g.opt.Pool},
		Profiles: []config.Profile{{Name: "burst", Memory: 30 * sharing.GiB,
			Burst: sharing.Burst{Memory: 40 * sharing.GiB}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.bench.apply(conf, g.opt.Pool)
	p := g.tenant()
	g.activate(p, "", g.bursting(10))
	g.bench.loans.Balance(t.Context())
	g.holds(gibs(p, 35))
	g.looks(3)
	g.lives(p)
	late := g.tenant()
	_, err = g.bench.Reserve(t.Context(), late.Peer, "", g.plainly(60))
	refused(t, err, sharing.ErrExhausted, "25GiB used as burst memory")
	g.looks(3)
	g.lives(p)
	g.holds(gibs(p, 12))
	g.activate(late, "", g.plainly(60))
	g.holds(gibs(p, 35))
	g.looks(3)
	g.dead(p)
}
