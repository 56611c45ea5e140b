// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// wholeClaim is what NodePrepareResources reserves for a container that references the first GPU as a whole.
func (b *bench) wholeClaim(pod, container string) sharing.ContainerRequest {
	ask := b.claimed(pod, container, claimUID, sharing.ContainerApp, 0, 0)
	ask.Request.Kind, ask.Advice.Exact = sharing.KindWhole, true
	return ask
}

// TestWholeGPUOfSeveralPods: containers of two pods have one GPU at once, each with its own grant. The GPU is free once
// kubelet has unprepared the claim, and not before.
func TestWholeGPUOfSeveralPods(t *testing.T) {
	b := newPodBench(t)
	b.start()
	id := b.gpus[0].Ref()
	main, side, second := b.wholeClaim("p", "main"), b.wholeClaim("p", "side"), b.wholeClaim("q", "main")
	b.reserved(main, side)
	first, helper := b.run(admitted(main)), b.run(admitted(side))
	other := b.run(admitted(second)) // Kubelet does not prepare again.
	for _, c := range []*container{first, helper, other} {
		g := b.active(c.ask, c)
		if g.Level != sharing.LevelExclusive || !g.Placement[0].Whole || g.Placement[0].GPU != id ||
			g.SharedCap != nil {
			t.Errorf("%s has %+v", c.ask.Ref, g)
		}
		if c.in.Env["KERF_GPUS"] != id.String() || c.in.Grant != string(g.ID) {
			t.Errorf("%s gets %v of grant %s", c.ask.Ref, c.in.Env, c.in.Grant)
		}
	}
	booked := func(grants int) {
		t.Helper()
		if v, _ := b.Store.GPU(id); v.Grants != 1 || !v.Whole || v.Overbooked || v.FreeMemory != 0 ||
			v.GrantedMemory != b.gpus[0].Usable() || len(b.PodGrants()) != grants {
			t.Fatalf("%d grants, booked %+v", len(b.PodGrants()), v)
		}
		b.check()
	}
	booked(3)
	b.start() // The checkpoint has all of them.
	booked(3)
	first.remove()
	helper.remove()
	b.PodRemoved("uid-p")
	b.eventually("the grants of the first pod end", func() bool {
		b.Reconcile(t.Context())
		return len(b.PodGrants()) == 1
	})
	booked(1)
	b.active(second, other)
	other.remove()
	b.PodRemoved("uid-q")
	b.Reconcile(t.Context())
	booked(1) // A third pod may have referenced the claim.
	third := b.run(admitted(b.wholeClaim("r", "main")))
	b.eventually("the grant of the second pod ends", func() bool {
		b.Reconcile(t.Context())
		return len(b.PodGrants()) == 1
	})
	third.remove()
	b.unprepared(claimUID)
}

// TestShareOfTheNextPod: the next pod takes over the share of a claim once the first one has ended, and not before.
func TestShareOfTheNextPod(t *testing.T) {
	g := newPreloadedPods(t, preloading)
	m := g.claimed("p", "main", claimUID, sharing.ContainerApp, 6*sharing.GiB, 20)
	s := g.claimed("p", "side", claimUID, sharing.ContainerApp, 4*sharing.GiB, 10)
	s.With = "main"
	all, err := sharing.MergeSharedCaps([]sharing.ContainerRequest{m, s})
	if err != nil {
		t.Fatal(err)
	}
	g.reserved(all...)
	main := g.run(admitted(m))
	next := admitted(g.claimed("q", "work", claimUID, sharing.ContainerApp, 0, 0))
	refuse := func() {
		t.Helper()
		_, err := g.Inject(t.Context(), next, g.newID())
		refused(t, err, sharing.ErrUnavailable, "pod ns/p has the ResourceClaim and has not ended; delete it, or")
	}
	refuse()
	g.PodRemoved("uid-p")
	refuse() // Its process runs.
	main.remove()
	g.eventually("its container has ended", func() bool {
		g.Reconcile(t.Context())
		return g.grant(m).Active == nil
	})
	init := next
	init.Kind, init.Ref.Container = sharing.ContainerInit, "first"
	g.run(init).remove()
	g.eventually("the init container has ended", func() bool {
		g.Reconcile(t.Context())
		return g.grant(init).Active == nil
	})
	work := g.run(next) // It takes over from the init container of its pod.
	if work.in.Env["KERF_MEMORY_BYTES"] != "10737418240" || work.in.Env["KERF_PERCENT"] != "30" {
		t.Errorf("it gets %v", work.in.Env)
	}
	if left := containersOf(g.PodGrants()); len(left) != 2 || left[0] != "p/side" || left[1] != "q/work" {
		t.Errorf("grants of %v", left)
	}
	if v, _ := g.Store.GPU(g.gpus[0].Ref()); v.GrantedMemory != 10*sharing.GiB || v.Grants != 2 {
		t.Errorf("booked %+v", v)
	}
	work.remove()
	g.unprepared(claimUID)
}

// TestUnpreparedIsOnRecord: an agent that starts again knows that a claim is not prepared, while its container runs.
func TestUnpreparedIsOnRecord(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.claimed("p", "main", claimUID, sharing.ContainerApp, 10*sharing.GiB, 0)
	b.reserved(ask)
	c := b.run(admitted(ask))
	if err := b.EndClaims([]string{claimUID}); err != nil {
		t.Fatal(err)
	}
	b.start()
	if g := b.active(ask, c); g.Withdrawn != ledger.ClaimEnded {
		t.Errorf("withdrawn: %d", g.Withdrawn)
	}
	c.remove()
	b.gone()
}

// TestInstanceOfSeveralPods: containers of two pods have one MIG instance at once by one claim. It is created once, and
// stays until kubelet has unprepared the claim.
func TestInstanceOfSeveralPods(t *testing.T) {
	b := newMIGBench(t)
	b.begin()
	in := sharing.InstanceRef{Profile: "3g", Start: 1}
	ofClaim := func(pod string) sharing.ContainerRequest {
		ask := b.claimed(pod, "main", claimUID, sharing.ContainerApp, 0, 0)
		ask.Request.Kind, ask.Request.MIG = sharing.KindMIG, in.Profile
		ask.Advice.Exact, ask.Advice.MIG = true, in
		return ask
	}
	p, q := ofClaim("p"), ofClaim("q")
	b.reserved(p)
	if err := b.AwaitInstances(t.Context(), p.Ref.PodUID); err != nil {
		t.Fatal(err)
	}
	first, second := b.run(admitted(p)), b.run(admitted(q)) // Kubelet does not prepare again.
	for _, c := range []*container{first, second} {
		if g := b.active(c.ask, c); g.Level != sharing.LevelHardware || g.Placement[0].Instance() != in {
			t.Errorf("%s has %+v", c.ask.Ref, g)
		}
	}
	if b.mig.n != 1 || !slices.Equal(b.holders(), []string{"pod ns/p", "pod ns/q"}) {
		t.Errorf("%d instances, held by %q", b.mig.n, b.holders())
	}
	b.check()
	first.remove()
	b.PodRemoved(p.Ref.PodUID)
	b.eventually("the grant of the first pod ends", func() bool {
		b.Reconcile(t.Context())
		return len(b.PodGrants()) == 1
	})
	b.active(second.ask, second)
	second.remove()
	b.unprepared(claimUID)
}
