// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/record"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// step is one random change. The ledger refuses many of them.
func step(l *ledger.Ledger, r *rand.Rand) error {
	id := ledger.GrantID(fmt.Sprintf("g-%02d", r.IntN(12)))
	container, cgroup := fmt.Sprint("c", r.IntN(20)), fmt.Sprint("/cg", r.IntN(20))
	switch r.IntN(9) {
	case 0:
		return l.Restore(ledger.Reservation{ID: id, Owner: ledger.Owner{PID: 7}}, nil)
	case 1:
		owner := ledger.Owner{PodUID: "p-" + string(id), Container: "c"}
		return l.Restore(ledger.Reservation{ID: id, Owner: owner}, nil)
	case 2, 3:
		return l.Assign(id, ledger.Attachment{ContainerID: container, Container: "c"})
	case 4:
		return l.Activate(id, container, cgroup, r.Uint64N(9)+1)
	case 5:
		return l.Activated(id)
	case 6:
		return l.EndAttachment(id)
	case 7:
		l.Withdraw(id, ledger.ClaimEnded)
		return nil
	default:
		return l.Release(id)
	}
}

// Whatever changes between two checkpoints, each has all grants that belong in it, as they are.
func TestEachCheckpointIsWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	b := newBench(t, boot)
	changed, written := 0, 0
	for n := range 800 {
		if err := b.UpdateLater(func(l *ledger.Ledger) error { return step(l, r) }); err == nil {
			changed++
		}
		if err := b.Save(); err != nil {
			t.Fatal(err)
		}
		got, err := record.Decode(read(t, b.path))
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		want := record.Record{BootID: boot, Grants: []record.Grant{}}
		for _, g := range b.Grants() {
			one := store.Recorded(g.Reservation, g.Current())
			if one.ClaimEnded = g.Withdrawn == ledger.ClaimEnded; g.Owner.Pod() || one.Cgroup != "" {
				want.Grants = append(want.Grants, one)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("step %d: %s", n, d)
		}
		written += len(got.Grants)
	}
	if changed < 200 || written < 1000 {
		t.Errorf("%d changes and %d grants written in all", changed, written)
	}
}
