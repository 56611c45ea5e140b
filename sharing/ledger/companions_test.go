// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

const companionClaim = "11111111-0000-4000-8000-000000000000"

// companion is the grant of a container that has the first GPU by a claim.
func companion(l *ledger.Ledger, n int, claim string) ledger.Reservation {
	gpu := l.GPUs()[0].GPU
	req := sharing.Request{Kind: sharing.KindWhole, GPUs: 1}
	c := ledger.Reservation{ID: ledger.GrantID(fmt.Sprint("g", n)), Request: req,
		Placement: sharing.Placement{req.On(gpu)},
		Owner:     ledger.Owner{PodUID: fmt.Sprint("pod", n/2), Container: fmt.Sprint("c", n%2)}}
	c.Requests = []sharing.ResourceRequest{sharing.ClaimRequest(claim, "gpu")}
	return c
}

func companionLedger(t *testing.T) *ledger.Ledger {
	t.Helper()
	l := ledger.New()
	if err := l.SetInventory([]sharing.GPU{{UUID: uuid("gpu0").UUID, Model: "NVIDIA H100", Memory: 80 * sharing.GiB,
		Health: sharing.HealthOK}}); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestCompanions: grants of one claim have a whole GPU together, and the GPU counts them once. Another claim gets
// nothing of it.
func TestCompanions(t *testing.T) {
	l := companionLedger(t)
	id := l.GPUs()[0].GPU.Ref()
	for n := range 3 {
		if err := l.Reserve(companion(l, n, companionClaim)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Reserve(companion(l, 9, "22222222-0000-4000-8000-000000000000")); !errors.Is(err,
		sharing.ErrExhausted) {
		t.Errorf("another claim: %v", err)
	}
	for n := range 3 {
		a := ledger.Attachment{ContainerID: fmt.Sprint("k", n), Cgroup: fmt.Sprint("/k", n), Inode: 1}
		if err := ledger.ActivateNow(l, ledger.GrantID(fmt.Sprint("g", n)), a); err != nil {
			t.Fatal(err)
		}
	}
	if v, _ := l.GPU(id); v.Grants != 1 || v.GrantedMemory != 80*sharing.GiB || v.ActiveMemory != 80*sharing.GiB ||
		v.Overbooked {
		t.Errorf("%+v", v)
	}
	if err := l.SetHealth(id, sharing.HealthUnhealthy, "test"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reserve(companion(l, 3, companionClaim)); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("on an unhealthy GPU: %v", err)
	}
	l.Withdraw("g0", ledger.ClaimEnded)
	l.Withdraw("g1", ledger.ClaimEnded)
	l.Withdraw("g2", ledger.ClaimEnded)
	if g, ok := ledger.CompanionOf(companion(l, 4, companionClaim).Requests, l.Grants()); ok {
		t.Errorf("of an ended claim: %+v", g)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// TestTransfer: the followers of a grant with a shared cap follow the new one. A grant in use stays.
func TestTransfer(t *testing.T) {
	l := companionLedger(t)
	gpu := l.GPUs()[0].GPU
	req := sharing.Request{Memory: 10 * sharing.GiB, GPUs: 1}
	leader := companion(l, 0, companionClaim)
	leader.Request, leader.Placement = req, sharing.Placement{req.On(gpu)}
	follower := companion(l, 1, companionClaim)
	follower.Request, follower.Placement, follower.With = req, sharing.Placement{req.On(gpu)}, leader.ID
	for _, c := range []ledger.Reservation{leader, follower} {
		if err := l.Reserve(c); err != nil {
			t.Fatal(err)
		}
	}
	next := ledger.Owner{PodUID: "next", Container: "c"}
	if err := ledger.Transfer(l, "g0", "g9", next, sharing.ContainerApp, 7); err != nil {
		t.Fatal(err)
	}
	got, _ := l.Get("g9")
	side, _ := l.Get("g1")
	memory, _ := got.SharedCap.Total()
	if _, left := l.Get("g0"); left || side.With != "g9" || memory != 20*sharing.GiB || got.Owner != next ||
		got.Priority != 7 || !got.Fresh {
		t.Errorf("%+v, followed by %+v", got, side)
	}
	if v, _ := l.GPU(gpu.Ref()); v.GrantedMemory != 20*sharing.GiB || v.Grants != 2 {
		t.Errorf("booked %+v", v)
	}
	for want, err := range map[error]error{
		sharing.ErrNotFound: ledger.Transfer(l, "g0", "g10", next, sharing.ContainerApp, 0),
		sharing.ErrConflict: ledger.Transfer(l, "g1", "g10", next, sharing.ContainerApp, 0), // It has a grant.
		sharing.ErrInvalid:  ledger.Transfer(l, "g1", "g10", ledger.Owner{}, sharing.ContainerApp, 0),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	a := ledger.Attachment{ContainerID: "k", Cgroup: "/k", Inode: 1}
	if err := ledger.ActivateNow(l, "g9", a); err != nil {
		t.Fatal(err)
	}
	other := ledger.Owner{PodUID: "other", Container: "c"}
	if err := ledger.Transfer(l, "g9", "g10", other, sharing.ContainerApp, 0); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("in use: %v", err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// TestCompanionsAtRandom: whatever comes and goes, the GPU has the devices once, and is free when the last one goes.
func TestCompanionsAtRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	l := companionLedger(t)
	id := l.GPUs()[0].GPU.Ref()
	alive := map[ledger.GrantID]bool{}
	for n := range 3000 {
		pick := ledger.GrantID(fmt.Sprint("g", max(0, n-rnd.IntN(8))))
		switch rnd.IntN(5) {
		case 0, 1:
			c := companion(l, n, companionClaim)
			var err error
			if rnd.IntN(4) == 0 {
				err = l.Restore(c, &ledger.Attachment{Cgroup: fmt.Sprint("/r", n), Inode: 1})
			} else {
				err = l.Reserve(c)
			}
			if err != nil {
				t.Fatal(err)
			}
			alive[c.ID] = true
		case 2:
			_ = ledger.ActivateNow(l, pick, ledger.Attachment{ContainerID: fmt.Sprint("k", n),
				Cgroup: fmt.Sprint("/k", n), Inode: 1}) // or it is in use
		case 3:
			_ = l.EndAttachment(pick) // or it has none
		case 4:
			if l.Release(pick) == nil {
				delete(alive, pick)
			}
		}
		if err := l.Check(); err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		v, _ := l.GPU(id)
		if v.Whole != (len(alive) > 0) || v.Grants != min(1, len(alive)) || len(l.Grants()) != len(alive) {
			t.Fatalf("step %d: %d grants, GPU %+v", n, len(alive), v)
		}
	}
}
