// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// BenchmarkGrant reserves and releases one grant on a node of 8 GPUs with 50 grants.
func BenchmarkGrant(b *testing.B) {
	l := ledger.New()
	var inventory []sharing.GPU
	for i := range 8 {
		inventory = append(inventory, sharing.GPU{UUID: uuid(fmt.Sprint("gpu", i)).UUID, Index: i,
			Memory: 80 * sharing.GiB, Health: sharing.HealthOK})
	}
	if err := l.SetInventory(inventory); err != nil {
		b.Fatal(err)
	}
	grant := func(i int) ledger.Reservation {
		return ledger.Reservation{
			ID: ledger.GrantID(fmt.Sprint(i)), Request: sharing.Request{Memory: sharing.GiB, GPUs: 1},
			Owner:     ledger.Owner{PodUID: fmt.Sprint(i), Container: "main"},
			Placement: sharing.Placement{{GPU: inventory[i%8].Ref(), Memory: sharing.GiB}},
		}
	}
	for i := range 50 {
		if err := l.Reserve(grant(i)); err != nil {
			b.Fatal(err)
		}
	}
	c := grant(50)
	b.Run("reserve", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Reserve(c); err != nil {
				b.Fatal(err)
			}
			if err := l.Release(c.ID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("views", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(l.GPUs()) != 8 {
				b.Fatal("GPUs are missing")
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Check(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
