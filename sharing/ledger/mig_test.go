// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func migGPU(id string, mig bool) sharing.GPU {
	return sharing.GPU{UUID: sharing.GPURef{UUID: sharing.GPUID(id)}.UUID, Memory: 80 * sharing.GiB,
		Health: sharing.HealthOK, MIG: mig}
}

func migGrant(id, gpu string, start, size int) Reservation {
	return Reservation{
		ID: GrantID(id), Request: sharing.Request{Kind: sharing.KindMIG, MIG: "1g", GPUs: 1},
		Terms: Terms{Level: sharing.LevelHardware},
		Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: sharing.GPUID(gpu)}, Memory: 10 * sharing.GiB,
			MIG: sharing.Instance{Profile: "1g.10gb", ID: 19, Start: start, Size: size}}},
	}
}

// Random grants on one GPU against a naive list: what overlaps is refused, and all else is booked.
func TestInstancesProperty(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := New()
	if err := l.SetInventory([]sharing.GPU{migGPU("a", true)}); err != nil {
		t.Fatal(err)
	}
	have := map[string]sharing.Instance{}
	refused := 0
	for i := range 2000 {
		id := fmt.Sprintf("k-%d", i)
		c := migGrant(id, "a", r.IntN(8), 1+r.IntN(4))
		free := true
		for _, in := range have {
			free = free && !in.Overlaps(c.Placement[0].MIG)
		}
		err := l.Reserve(c)
		if free != (err == nil) || err != nil && !errors.Is(err, sharing.ErrExhausted) {
			t.Fatalf("%v next to %v: %v", c.Placement[0].MIG, have, err)
		}
		if err == nil {
			have[id] = c.Placement[0].MIG
		} else {
			refused++
		}
		for id := range have {
			if r.IntN(3) == 0 {
				if err := l.Release(GrantID(id)); err != nil {
					t.Fatal(err)
				}
				delete(have, id)
			}
		}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if refused < 100 || refused > 1900 {
		t.Errorf("%d refused are no test", refused)
	}
}

// Each kind stays on GPUs of its kind, and an instance has one size.
func TestInstancesApart(t *testing.T) {
	l := New()
	if err := l.SetInventory([]sharing.GPU{migGPU("a", true), migGPU("b", false)}); err != nil {
		t.Fatal(err)
	}
	want := func(what string, err, kind error) {
		t.Helper()
		if !errors.Is(err, kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("an instance outside MIG mode", l.Reserve(migGrant("1", "b", 0, 1)), sharing.ErrUnsupported)
	share := Reservation{ID: "2", Request: sharing.Request{Memory: sharing.GiB, GPUs: 1},
		Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "a"}, Memory: sharing.GiB}}}
	want("a share in MIG mode", l.Reserve(share), sharing.ErrUnsupported)
	none := migGrant("3", "a", 0, 1)
	none.Placement[0].MIG = sharing.Instance{}
	want("no instance", l.Reserve(none), sharing.ErrInvalid)
	want("past the axis", l.Reserve(migGrant("4", "a", 14, 4)), sharing.ErrInvalid)
	want("booked", l.Reserve(migGrant("5", "a", 0, 4)), nil)
	_, err := Resized(migGrant("5", "a", 0, 4).Placement, sharing.GiB)
	want("another size", err, sharing.ErrUnsupported)
	// Facts win: what was found overlapping is booked, and shows as too much.
	if err := l.Restore(migGrant("6", "a", 2, 4), nil); err != nil {
		t.Fatal(err)
	}
	if len(l.Overbooked()) != 1 {
		t.Error("two instances in one place are not reported")
	}
	want("next to them", l.Reserve(migGrant("7", "a", 6, 1)), sharing.ErrExhausted)
	if err := errors.Join(l.Release("6"), l.Check(), l.Reserve(migGrant("7", "a", 6, 1)), l.Check()); err != nil {
		t.Error(err)
	}
}
