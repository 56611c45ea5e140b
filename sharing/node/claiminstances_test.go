// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

// holdOf is an allocation of the claim of claimPods on the first GPU.
func (b *bench) holdOf(uid string) instances.Hold {
	return instances.Hold{Key: uid + " at t", ClaimUID: uid, Who: "claim ns/" + uid, GPU: b.gpus[0].UUID}
}

func (b *bench) holders() (who []string) {
	b.t.Helper()
	list, err := b.GrantsOn(b.gpus[0].UUID)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, one := range list {
		who = append(who, one.Who)
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// An instance of a claim exists before its pod does, and no grant with it. Others do not get it. The claim's grant has
// the same instance, and outlives the hold.
func TestClaimInstance(t *testing.T) {
	b := newMIGBench(t)
	b.begin()
	c, in := ClaimInstances{b.Runtime}, sharing.InstanceRef{Profile: "3g", Start: 1}
	for range 2 { // again is the same
		if err := c.Create(t.Context(), b.holdOf(claimUID), in); err != nil {
			t.Fatal(err)
		}
	}
	if b.mig.n != 1 || len(b.Store.Grants()) != 0 || !slices.Equal(b.holders(), []string{"claim ns/" + claimUID}) {
		t.Fatalf("%d instances, grants %+v, held by %q", b.mig.n, b.Store.Grants(), b.holders())
	}
	other := b.app("other", "mig-3g:1")
	other.Advice = sharing.Advice{GPUs: []sharing.GPUID{b.gpus[0].UUID}, MIG: in}
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{other}); err != nil ||
		b.grant(other).Placement[0].MIG.Start != 4 {
		t.Errorf("another pod: %v, %+v", err, b.grant(other))
	}
	err := c.Create(t.Context(), b.holdOf("two"), sharing.InstanceRef{Profile: "1g", Start: 2})
	refused(t, err, sharing.ErrExhausted, "is full")

	p := &claimBench{bench: b.bench}
	p.prepare()
	device, _ := dra.InstanceName(b.gpus[0].UUID, in)
	if err := p.request(device); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), b.holdOf(claimUID), in); err != nil || b.mig.n != 2 {
		t.Errorf("of a prepared claim: %v, %d instances", err, b.mig.n)
	}
	c.Release(b.holdOf(claimUID).Key)
	if got := b.holders(); !slices.Equal(got, []string{"pod ns/other", "pod ns/p"}) {
		t.Errorf("after the assignment: %q", got)
	}
	if err := p.Unprepare([]string{claimUID}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the end of the claim's grant", func() bool { return len(b.holders()) == 1 })
}

// A failure of the driver reaches the caller, and the hold stays until the caller releases it.
func TestClaimInstanceFails(t *testing.T) {
	b := newMIGBench(t)
	b.mig.fail = fmt.Errorf("in use by process 7: %w", sharing.ErrConflict)
	stop := b.begin()
	c, in := ClaimInstances{b.Runtime}, sharing.InstanceRef{Profile: "1g", Start: 6}
	err := c.Create(t.Context(), b.holdOf("one"), in)
	refused(t, err, sharing.ErrConflict, "claim ns/one", "process 7")
	c.Release("another key")
	if len(b.holders()) != 1 {
		t.Errorf("held by %q", b.holders())
	}
	c.Release(b.holdOf("one").Key)
	if len(b.holders()) != 0 {
		t.Errorf("left: %q", b.holders())
	}
	b.SetMIG(nil)
	refused(t, c.Create(t.Context(), b.holdOf("one"), in), sharing.ErrUnavailable)
	stop()
	b.Runtime = New(b.opt)
	refused(t, ClaimInstances{b.Runtime}.Create(t.Context(), b.holdOf("one"), in), sharing.ErrUnavailable)
}

// A claim makes an idle GPU switch to MIG mode, as a pod does. While a share keeps the GPU, the claim gets nothing.
func TestClaimInstanceSwitchesTheMode(t *testing.T) {
	b, m := newTurnBench(t)
	share := b.app("share", "gpu-memory-gib:4")
	run := b.run(share)
	c, in := ClaimInstances{b.Runtime}, sharing.InstanceRef{Profile: "3g", Start: 1}
	err := c.Create(t.Context(), b.holdOf("one"), in)
	if !isNoFit(err) || !strings.Contains(err.Error(), "is held by pod ns/share") || m.count() != 0 {
		t.Fatalf("%d switches: %v", m.count(), err)
	}
	run.remove()
	b.gone("share")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Create(ctx, b.holdOf("one"), in); err != nil || m.count() != 1 || b.mig.n != 1 {
		t.Errorf("%d switches, %d instances: %v", m.count(), b.mig.n, err)
	}
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{share}); !isNoFit(err) {
		t.Errorf("the GPU of the claim gives a share: %v", err)
	}
}

// Holds are those of an allocation, and no claim sees its own.
func TestHolds(t *testing.T) {
	var h instances.Holds
	one := sharing.Instance{Profile: "1g", Start: 1, Size: 1}
	for _, add := range []instances.Hold{{Key: "a", ClaimUID: "u", GPU: "g", Instance: one, Who: "claim u"},
		{Key: "a", ClaimUID: "u", GPU: "g", Instance: one, Who: "claim u"},
		{Key: "b", ClaimUID: "v", GPU: "h", Instance: one, Who: "claim v"}} {
		h.Add(add)
	}
	want := []mig.Granted{{Instance: one, Who: "claim u"}}
	if got := h.On("g", nil); !slices.Equal(got, want) || len(h.On("g", []string{"u"})) != 0 {
		t.Errorf("%+v", got)
	}
	if h.Remove("a"); len(h.On("g", nil)) != 0 || len(h.On("h", []string{"u"})) != 1 {
		t.Error("a hold stays, or another is gone")
	}
}
