// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// BenchmarkClaim reserves and releases one grant on a node of 8 GPUs with 50 grants.
func BenchmarkClaim(b *testing.B) {
	l := ledger.New()
	var inventory []sharing.GPU
	for i := range 8 {
		inventory = append(inventory, sharing.GPU{UUID: uuid(fmt.Sprint("gpu", i)).UUID, Index: i,
			Memory: 80 * sharing.GiB, Health: sharing.HealthOK})
	}
	if err := l.SetInventory(inventory); err != nil {
		b.Fatal(err)
	}
	claim := func(i int) ledger.Claim {
		return ledger.Claim{
			ID: ledger.ClaimID(fmt.Sprint(i)), Request: sharing.Request{Memory: sharing.GiB, GPUs: 1},
			Owner:     ledger.Owner{PodUID: fmt.Sprint(i), Container: "main"},
			Placement: sharing.Placement{{GPU: inventory[i%8].Ref(), Memory: sharing.GiB}},
		}
	}
	for i := range 50 {
		if err := l.Claim(claim(i)); err != nil {
			b.Fatal(err)
		}
	}
	c := claim(50)
	b.Run("claim", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Claim(c); err != nil {
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
