// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A GPU that uses the system's memory is granted whole and once. A share of it is no placement.
func TestSystemMemory(t *testing.T) {
	gpu := sharing.GPU{UUID: "a", Hardware: sharing.Hardware{SystemMemory: true}, Health: sharing.HealthOK}
	l := New()
	if err := l.SetInventory([]sharing.GPU{gpu}); err != nil {
		t.Fatal(err)
	}
	whole := func(id GrantID) Reservation {
		r := testGrant(id)
		r.Request = sharing.Request{Kind: sharing.KindWhole, GPUs: 1}
		r.Placement = sharing.Placement{r.Request.On(gpu)}
		return r
	}
	share := testGrant("share")
	share.Request = sharing.Request{Percent: 25, GPUs: 1}
	share.Placement = sharing.Placement{share.Request.On(gpu)}
	if err := l.Reserve(share); err == nil {
		t.Error("a share is granted")
	}
	if err := l.Reserve(whole("one")); err != nil {
		t.Fatal(err)
	}
	if err := l.Reserve(whole("two")); err == nil {
		t.Error("the GPU is granted twice")
	}
	if f := whole("one").Placement[0]; !Covers(f, f) {
		t.Error("the grant cannot be used by its container")
	}
}
