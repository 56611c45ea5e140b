// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func testGPU(id sharing.GPURef) sharing.GPU {
	return sharing.GPU{UUID: id.UUID, Memory: 80 * sharing.GiB, Health: sharing.HealthOK,
		NVLinks: []sharing.GPUID{"peer"}}
}

// testGrant takes 10 GiB and 50 percent of GPU a.
func testGrant(id GrantID) Reservation {
	const uuid = "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	return Reservation{
		ID: id, Name: "name-" + string(id),
		Request: sharing.Request{Memory: 10 * sharing.GiB, Percent: 50, GPUs: 1, Models: []string{"*"},
			UUIDs: []sharing.GPUID{uuid}},
		Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "a"}, Memory: 10 * sharing.GiB, Percent: 50}},
	}
}

func testLedger(t *testing.T, grants ...Reservation) *Ledger {
	t.Helper()
	l := New()
	if err := l.SetInventory([]sharing.GPU{testGPU(sharing.GPURef{UUID: "a"}),
		testGPU(sharing.GPURef{UUID: "b"})}); err != nil {
		t.Fatal(err)
	}
	for _, c := range grants {
		if err := l.Reserve(c); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// What goes in and what comes out can be scribbled on.
func TestNothingAliases(t *testing.T) {
	t.Parallel()
	inventory := []sharing.GPU{testGPU(sharing.GPURef{UUID: "a"}), testGPU(sharing.GPURef{UUID: "b"})}
	l := New()
	if err := l.SetInventory(inventory); err != nil {
		t.Fatal(err)
	}
	c, active := testGrant("x"), Attachment{Cgroup: "/x", Inode: 1}
	if err := l.Restore(c, &active); err != nil {
		t.Fatal(err)
	}
	wantGrants, wantGPUs := l.Grants(), l.GPUs()
	scribble := func(g Grant) {
		g.Placement[0].Memory, g.Request.Models[0], g.Request.UUIDs[0], g.Active.Cgroup = 0, "x", "x",
			"/y"
	}
	inventory[0].NVLinks[0] = "x"
	scribble(Grant{Reservation: c, Active: &active})
	g, ok := l.Get("x")
	if !ok {
		t.Fatal("the grant is not found")
	}
	scribble(g)
	l.GPUs()[0].GPU.NVLinks[0] = "x"
	v, _ := l.GPU(sharing.GPURef{UUID: "a"})
	v.GPU.NVLinks[0] = "x"
	if diff := cmp.Diff(wantGrants, l.Grants()); diff != "" {
		t.Errorf("grants changed:\n%s", diff)
	}
	if diff := cmp.Diff(wantGPUs, l.GPUs()); diff != "" {
		t.Errorf("GPUs changed:\n%s", diff)
	}
}

// What Grants returned is a picture: it does not change with the ledger.
func TestGrantsStay(t *testing.T) {
	t.Parallel()
	leader, follower := testGrant("x"), testGrant("y")
	for _, c := range []*Reservation{&leader, &follower} {
		c.Name, c.Owner = "", Owner{PodUID: "u", Container: "c-" + string(c.ID)}
	}
	follower.With = "x"
	l := testLedger(t, leader)
	alone := l.Grants()
	if err := l.Reserve(follower); err != nil {
		t.Fatal(err)
	}
	both := l.Grants()
	if err := activate(l, "y", Attachment{Cgroup: "/y", Inode: 1, ContainerID: "i", Container: "c-y"}); err != nil {
		t.Fatal(err)
	}
	activated := l.Grants()
	if err := errors.Join(l.EndAttachment("y"), l.Release("y")); err != nil {
		t.Fatal(err)
	}
	type row struct {
		grants, joint, active int
	}
	count := func(all []Grant) (r row) {
		for _, g := range all {
			r.grants++
			if g.SharedCap != nil {
				r.joint++
			}
			if g.Active != nil {
				r.active++
			}
		}
		return r
	}
	got := []row{count(alone), count(both), count(activated), count(l.Grants())}
	if diff := cmp.Diff([]row{{1, 0, 0}, {2, 2, 0}, {2, 2, 1}, {1, 0, 0}}, got,
		cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	pod := testGrant("x")
	pod.Owner = Owner{PodUID: "u", Container: "main"}
	l := testLedger(t, pod)
	for name, ok := range map[string]bool{
		"id":                second(l.Get("x")),
		"container":         second(l.ByContainer("u", "main")),
		"no id":             !second(l.Get("")),
		"no pod":            !second(l.ByContainer("", "")),
		"another container": !second(l.ByContainer("u", "side")),
		"no GPU":            !second(l.GPU(sharing.GPURef{UUID: "c"})),
	} {
		if !ok {
			t.Errorf("%s is answered wrongly", name)
		}
	}
}

func second[T any](_ T, ok bool) bool { return ok }

// A call that fails leaves the ledger as it was.
func TestNothingHalfDone(t *testing.T) {
	t.Parallel()
	bad := func(change func(*Reservation)) Reservation {
		c := testGrant("y")
		change(&c)
		return c
	}
	const huge = sharing.Bytes(math.MaxUint64)
	active := &Attachment{Cgroup: "/y", Inode: 1}
	tests := map[string]struct {
		do func(*Ledger) error
		is error
	}{
		"no id": {func(l *Ledger) error { return l.Reserve(bad(func(c *Reservation) { c.ID = "" })) },
			sharing.ErrInvalid},
		"id taken": {func(l *Ledger) error { return l.Reserve(bad(func(c *Reservation) { c.ID = "x" })) },
			sharing.ErrConflict},
		"bad name": {func(l *Ledger) error { return l.Reserve(bad(func(c *Reservation) { c.Name = "Bad" })) },
			sharing.ErrInvalid},
		"name taken": {func(l *Ledger) error { return l.Reserve(bad(func(c *Reservation) { c.Name = "name-x" })) },
			sharing.ErrConflict},
		"half an owner": {func(l *Ledger) error {
			return l.Reserve(bad(func(c *Reservation) { c.Owner.PodUID = "u" }))
		},
			sharing.ErrInvalid},
		"bad request": {func(l *Ledger) error { return l.Reserve(bad(func(c *Reservation) { c.Request.GPUs = 0 })) },
			sharing.ErrInvalid},
		"open request": {func(l *Ledger) error {
			return l.Reserve(bad(func(c *Reservation) { c.Request = sharing.Request{Profile: "p"} }))
		}, sharing.ErrInvalid},
		"no shares": {func(l *Ledger) error { return l.Reserve(bad(func(c *Reservation) { c.Placement = nil })) },
			sharing.ErrInvalid},
		"unknown GPU": {func(l *Ledger) error {
			return l.Reserve(bad(func(c *Reservation) { c.Placement[0].GPU = sharing.GPURef{UUID: "z"} }))
		}, sharing.ErrNotFound},
		"restore without id": {func(l *Ledger) error { return l.Restore(Reservation{}, active) }, sharing.ErrInvalid},
		"restore twice":      {func(l *Ledger) error { return l.Restore(testGrant("x"), active) }, sharing.ErrConflict},
		"restore over 100%": {func(l *Ledger) error {
			return l.Restore(bad(func(c *Reservation) { c.Placement[0].Percent = 101 }), active)
		}, sharing.ErrInvalid},
		"restore on no GPU": {func(l *Ledger) error {
			return l.Restore(bad(func(c *Reservation) { c.Placement[0].GPU = sharing.GPURef{UUID: ""} }), active)
		}, sharing.ErrInvalid},
		"restore overflow": {func(l *Ledger) error {
			return l.Restore(bad(func(c *Reservation) { c.Placement[0].Memory = huge }), active)
		}, sharing.ErrInvalid},
		"restore without cgroup": {func(l *Ledger) error { return l.Restore(testGrant("y"), &Attachment{Inode: 1}) },
			sharing.ErrInvalid},
		"restore without inode": {func(l *Ledger) error {
			return l.Restore(testGrant("y"),
				&Attachment{Cgroup: "/y"})
		}, sharing.ErrInvalid},
		"health of no GPU": {func(l *Ledger) error {
			return l.SetHealth(sharing.GPURef{UUID: "z"},
				sharing.HealthOK, "")
		}, sharing.ErrNotFound},
		"inventory without UUID": {func(l *Ledger) error { return l.SetInventory([]sharing.GPU{{Memory: 1}}) },
			sharing.ErrInvalid},
		"adopt an unknown grant":  {func(l *Ledger) error { return l.Adopt("z", *active) }, sharing.ErrNotFound},
		"adopt without a cgroup":  {func(l *Ledger) error { return l.Adopt("x", Attachment{}) }, sharing.ErrInvalid},
		"end of an unknown grant": {func(l *Ledger) error { return l.EndAttachment("z") }, sharing.ErrNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := testLedger(t, testGrant("x"))
			grants, gpus := l.Grants(), l.GPUs()
			if err := tt.do(l); !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %v", err, tt.is)
			}
			if diff := cmp.Diff(grants, l.Grants()) + cmp.Diff(gpus, l.GPUs()); diff != "" {
				t.Errorf("changed:\n%s", diff)
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The last byte is given, and not one more.
func TestTheLastByte(t *testing.T) {
	t.Parallel()
	l := testLedger(t, testGrant("x"))
	grant := func(id GrantID, memory sharing.Bytes) error {
		return l.Reserve(Reservation{ID: id, Request: sharing.Request{Memory: memory, GPUs: 1},
			Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "a"}, Memory: memory}}})
	}
	if err := grant("y", 70*sharing.GiB+1); !errors.Is(err, sharing.ErrExhausted) {
		t.Errorf("one byte too much: %v", err)
	}
	if err := grant("y", 70*sharing.GiB); err != nil {
		t.Errorf("all that is left: %v", err)
	}
	if v, _ := l.GPU(sharing.GPURef{UUID: "a"}); v.FreeMemory != 0 || v.FreePercent != 50 || v.Overbooked {
		t.Errorf("a full GPU is %+v", v)
	}
}

// A restored grant whose name cannot be kept is worth more than its name.
func TestRestoreDropsTheName(t *testing.T) {
	t.Parallel()
	l := testLedger(t, testGrant("x"))
	for i, name := range []string{"name-x", "Not A Name", "\x00"} {
		c := Reservation{ID: GrantID(rune('p' + i)), Name: name}
		if err := l.Restore(c, nil); err != nil {
			t.Fatal(err)
		}
		if g, _ := l.Get(c.ID); g.Name != "" {
			t.Errorf("name %q is kept", g.Name)
		}
	}
	if g, _ := l.Get("x"); g.Name != "name-x" {
		t.Errorf("the name of the grant that had it is now %q", g.Name)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// Check finds every kind of breach: without it, the property test would prove nothing.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(*Ledger)
		want  string
	}{
		"a grant under another id": {func(l *Ledger) { l.grants["z"] = l.grants["x"] }, "is filed under"},
		"two shares on one GPU": {func(l *Ledger) {
			e := l.grants["x"]
			e.grant.Placement = append(e.grant.Placement, e.grant.Placement[0])
		}, "two shares"},
		"a lost name":          {func(l *Ledger) { delete(l.names, "name-x") }, "is not found by its name"},
		"a name of no one":     {func(l *Ledger) { l.names["ghost"] = "z" }, "2 names for 1 grants"},
		"a lost cgroup":        {func(l *Ledger) { delete(l.cgroups, "/x") }, "is not found by its cgroup"},
		"a wrong sum":          {func(l *Ledger) { l.gpus[sharing.GPURef{UUID: "a"}].held.memory-- }, "booked"},
		"a wrong count":        {func(l *Ledger) { l.gpus[sharing.GPURef{UUID: "a"}].active.grants++ }, "booked"},
		"a GPU without a page": {func(l *Ledger) { delete(l.gpus, sharing.GPURef{UUID: "a"}) }, "has no page"},
		"an overbooked GPU": {func(l *Ledger) { l.gpus[sharing.GPURef{UUID: "a"}].facts.Memory = sharing.GiB },
			"overbooked true"},
		"an excuse for nothing": {func(l *Ledger) { l.gpus[sharing.GPURef{UUID: "b"}].excused = true },
			"overbooked false"},
		"an empty page": {func(l *Ledger) { l.gpus[sharing.GPURef{UUID: "b"}].present = false },
			"is gone and has a page"},
		"a healthy ghost": {func(l *Ledger) { l.gpus[sharing.GPURef{UUID: "a"}].present = false },
			"is gone and healthy"},
		"a lost container": {func(l *Ledger) { l.grants["x"].active.ContainerID = "k" },
			"is not found by its container"},
		"a container of no one": {func(l *Ledger) { l.containers["k"] = "x" }, "1 containers for 0 attachments"},
		"an attachment not active": {func(l *Ledger) { l.grants["x"].active.State = Injected },
			"in use by an attachment that is injected"},
		"two active": {func(l *Ledger) { l.grants["x"].next = &Attachment{State: Active, Cgroup: "/y"} },
			"used next by an attachment that is active"},
		"two who activate": {func(l *Ledger) {
			l.grants["x"].next = &Attachment{State: Activating, Cgroup: "/y",
				ContainerID: "k"}
		}, "is to be used next, by container \"k\""},
		"a page of another": {func(l *Ledger) { l.gpus[sharing.GPURef{UUID: "a"}].facts.UUID = "z" }, "is filed under"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := testLedger(t, testGrant("x"))
			if err := activate(l, "x", Attachment{Cgroup: "/x", Inode: 1}); err != nil {
				t.Fatal(err)
			}
			if err := l.Check(); err != nil {
				t.Fatal(err)
			}
			tt.spoil(l)
			if err := l.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check says %v, want %q", err, tt.want)
			}
		})
	}
}

func TestSorted(t *testing.T) {
	t.Parallel()
	l := New()
	for _, id := range []GrantID{"c", "a", "b"} {
		if err := l.Restore(Reservation{ID: id}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var ids []GrantID
	for _, g := range l.Grants() {
		ids = append(ids, g.ID)
	}
	if !slices.IsSorted(ids) || len(ids) != 3 {
		t.Errorf("grants are %q", ids)
	}
}
