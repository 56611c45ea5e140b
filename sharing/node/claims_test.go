// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	claimUID  = "11111111-0000-4000-8000-000000000000"
	otherUID  = "22222222-0000-4000-8000-000000000000"
	claimName = "gpu"
)

// claimed is what NodePrepareResources reserves for a container: an amount of the first GPU by a claim.
func (b *bench) claimed(pod, container, uid string, kind sharing.ContainerKind, memory sharing.Bytes,
	percent sharing.Percent) sharing.ContainerRequest {
	id := b.gpus[0].UUID
	return sharing.ContainerRequest{
		Ref:  sharing.ContainerRef{PodUID: "uid-" + pod, Namespace: "ns", Pod: pod, Container: container},
		Kind: kind, Requests: []sharing.ResourceRequest{sharing.ClaimRequest(uid, claimName)},
		Request: sharing.Request{Memory: memory, Percent: percent, GPUs: 1, UUIDs: []sharing.GPUID{id}},
		Advice:  sharing.Advice{GPUs: []sharing.GPUID{id}},
	}
}

// admitted is what the NRI plugin knows of a container that claims admit: no amount.
func admitted(ask sharing.ContainerRequest) sharing.ContainerRequest {
	return sharing.ContainerRequest{Ref: ask.Ref, Kind: ask.Kind, Requests: ask.Requests, ExistingOnly: true}
}

// unprepared requires that nothing is left once kubelet has unprepared a claim.
func (b *bench) unprepared(uid string) {
	b.t.Helper()
	if err := b.EndClaims([]string{uid}); err != nil {
		b.t.Fatal(err)
	}
	b.gone()
}

// TestClaim has the grant of a claim from its preparation to its end, with a restart of the agent at each step.
func TestClaim(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.claimed("p", "main", claimUID, sharing.ContainerApp, 10*sharing.GiB, 25)
	ask.Claims = []string{"train-gpu/" + claimName}
	id := b.gpus[0].Ref()
	for range 2 { // kubelet may ask again
		b.reserved(ask)
		if err := b.Store.Save(); err != nil {
			t.Fatal(err)
		}
		b.start()
		if v, _ := b.Store.GPU(id); v.GrantedMemory != 10*sharing.GiB || v.GrantedPercent != 25 || v.Grants != 1 {
			t.Fatalf("booked %+v", v)
		}
	}
	c := b.run(admitted(ask))
	c.limits(map[sharing.GPURef]sharing.Bytes{id: 10 * sharing.GiB})
	b.start()
	b.active(ask, c)
	b.reserved(ask) // a kubelet that was restarted prepares again
	b.active(ask, c)
	if g := b.State(t.Context()).Grants; len(g) != 1 || !slices.Equal(g[0].Claims, ask.Claims) {
		t.Errorf("the status has grants %+v, want one of %v", g, ask.Claims)
	}
	// kubelet unprepares while the driver still charges the container: the memory stays booked.
	if err := b.EndClaims([]string{otherUID, claimUID}); err != nil {
		t.Fatal(err)
	}
	b.Reconcile(t.Context())
	if v, _ := b.Store.GPU(id); v.GrantedMemory != 10*sharing.GiB {
		t.Errorf("it runs, and %s are booked", v.GrantedMemory)
	}
	c.remove()
	b.eventually("no grant is left", func() bool { b.Reconcile(t.Context()); return len(b.PodGrants()) == 0 })
	b.empty()
	b.check()
}

// TestClaimOfAContainerThatNeverRan ends at once.
func TestClaimOfAContainerThatNeverRan(t *testing.T) {
	b := newPodBench(t)
	b.start()
	b.reserved(b.claimed("p", "main", claimUID, sharing.ContainerApp, 10*sharing.GiB, 0))
	for range 2 {
		if err := b.EndClaims([]string{claimUID}); err != nil {
			t.Fatal(err)
		}
		b.Reconcile(t.Context())
		if left := b.PodGrants(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// TestClaimsAreRefused: no container starts by a claim that is not prepared for it.
func TestClaimsAreRefused(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.claimed("p", "main", claimUID, sharing.ContainerApp, 10*sharing.GiB, 0)
	_, err := b.Inject(t.Context(), admitted(ask), b.newID())
	refused(t, err, sharing.ErrInvalid, "give each pod its own claim, for example with a ResourceClaimTemplate")
	b.reserved(ask)
	second := b.claimed("q", "main", claimUID, sharing.ContainerApp, 10*sharing.GiB, 0)
	_, err = b.Inject(t.Context(), admitted(second), b.newID())
	refused(t, err, sharing.ErrUnavailable, "pod ns/p has the ResourceClaim and has not ended; delete it, or give each")
	more := admitted(ask)
	more.Requests = append(more.Requests, sharing.ClaimRequest(otherUID, claimName))
	_, err = b.Inject(t.Context(), more, b.newID())
	refused(t, err, sharing.ErrConflict, otherUID)
	sidecar := b.claimed("p", "side", claimUID, sharing.ContainerApp, 10*sharing.GiB, 0)
	_, err = b.Inject(t.Context(), admitted(sidecar), b.newID())
	refused(t, err, sharing.ErrInvalid, "give each pod its own claim, for example with a ResourceClaimTemplate")
	c := b.inject(admitted(ask)).make()
	calls := c.calls()
	calls[1].Amount = sharing.ClaimRequest(otherUID, claimName).String()
	refused(t, b.ActivateContainer(t.Context(), calls[1]), sharing.ErrInvalid, otherUID)
	if err := b.ActivateContainer(t.Context(), calls[0]); err != nil {
		t.Fatal(err)
	}
	c.remove()
	b.unprepared(claimUID)
	// kubelet does not start the second pod before it has prepared the claim again.
	_, err = b.Inject(t.Context(), admitted(second), b.newID())
	refused(t, err, sharing.ErrInvalid, "no grant of pod ns/q has its ResourceClaim")
}

// TestClaimOfAnInitContainer: the init container uses the grant of the app container, and hands it over.
func TestClaimOfAnInitContainer(t *testing.T) {
	b := newPodBench(t)
	b.start()
	app := b.claimed("p", "main", claimUID, sharing.ContainerApp, 10*sharing.GiB, 0)
	first := b.claimed("p", "first", claimUID, sharing.ContainerInit, 10*sharing.GiB, 0)
	b.reserved(app)
	c := b.run(admitted(first))
	c.limits(map[sharing.GPURef]sharing.Bytes{b.gpus[0].Ref(): 10 * sharing.GiB})
	c.remove()
	main := b.run(admitted(app))
	if v, _ := b.Store.GPU(b.gpus[0].Ref()); v.Grants != 1 {
		t.Errorf("%d grants", v.Grants)
	}
	main.remove()
	b.unprepared(claimUID)
}

// TestClaimOfTwoContainers: they share one cap, which libkerf enforces.
func TestClaimOfTwoContainers(t *testing.T) {
	g := newPreloadedPods(t, preloading)
	m := g.claimed("p", "main", claimUID, sharing.ContainerApp, 6*sharing.GiB, 20)
	s := g.claimed("p", "side", claimUID, sharing.ContainerApp, 4*sharing.GiB, 10)
	s.With = "main"
	all, err := sharing.MergeSharedCaps([]sharing.ContainerRequest{m, s})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].Claims = []string{"train-gpu/" + claimName}
	}
	g.reserved(all...)
	for _, one := range g.State(t.Context()).Grants {
		if !slices.Equal(one.Claims, all[0].Claims) {
			t.Errorf("the grant of container %s has claims %v, want %v", one.Owner.Container, one.Claims, all[0].Claims)
		}
	}
	side, main := g.run(admitted(s)), g.run(admitted(m))
	for _, c := range []*container{main, side} {
		if c.in.Env["KERF_MEMORY_BYTES"] != "10737418240" || c.in.Env["KERF_PERCENT"] != "30" {
			t.Errorf("%s gets %v", c.ask.Ref, c.in.Env)
		}
	}
	g.reserved(all...) // prepared again
	g.active(m, main)
	g.active(s, side)
	main.remove()
	side.remove()
	g.unprepared(claimUID)
}
