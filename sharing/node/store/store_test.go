// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/record"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

const boot = "5f0c9a5e-8d55-4a2f-9a93-0e8d8b6a7d11"

type bench struct {
	*store.Store
	conditions *conditions.Set
	path       string
	fail       error
}

func newBench(t *testing.T, bootID string) *bench {
	t.Helper()
	b := &bench{conditions: conditions.New(func() {}), path: filepath.Join(t.TempDir(), "record.json")}
	b.Store = store.New(store.Options{
		Log: slog.New(slog.DiscardHandler), Conditions: b.conditions, Path: b.path, BootID: bootID,
		At: func(string) error { return b.fail },
	})
	return b
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// restore puts the grants of a checkpoint into the ledger.
func (b *bench) restore(t *testing.T, grants []record.Grant) {
	t.Helper()
	for _, g := range grants {
		c, a, err := store.Read(g)
		if err != nil {
			t.Fatal(err)
		}
		err = b.UpdateLater(func(l *ledger.Ledger) error {
			if a.Cgroup != "" {
				return l.Restore(c, &a)
			}
			if err := l.Restore(c, nil); err != nil || a.ContainerID == "" {
				return err
			}
			return l.Assign(c.ID, a)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// An agent of commit b8a025f wrote testdata/b8a025f.json. This agent reads it and writes the same bytes again, so that
// the older one reads it, too: there is a way back.
func TestTheWayBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, boot)
	old := read(t, "testdata/b8a025f.json")
	if err := os.WriteFile(b.path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := b.Load()
	if err != nil || found.Unrecorded || found.Damaged || len(found.Grants) != 8 {
		t.Fatalf("%+v, %v", found, err)
	}
	b.restore(t, found.Grants)
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	// The line breaks at the end are more than it wrote, and it ignores them.
	if d := cmp.Diff(string(bytes.TrimSpace(old)), string(bytes.TrimSpace(read(t, b.path)))); d != "" {
		t.Error(d)
	}
}

// After a boot no cgroup of before exists: only the grants of pods count, and no container has one.
func TestAnotherBoot(t *testing.T) {
	t.Parallel()
	b := newBench(t, "another")
	if err := os.WriteFile(b.path, read(t, "testdata/b8a025f.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := b.Load()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, g := range found.Grants {
		if ids = append(ids, g.ID); g.Cgroup != "" || g.Use != nil {
			t.Errorf("%s is in use: %+v", g.ID, g)
		}
	}
	if d := cmp.Diff([]string{"b-pod", "c-waits", "d-shares", "e-leader", "g-mig"}, ids); d != "" {
		t.Error(d)
	}
}

// A checkpoint that cannot be written is a condition until one is written; a damaged one is put aside.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t, boot)
	c := ledger.Reservation{ID: "x", Owner: ledger.Owner{PodUID: "p", Container: "main"}}
	if err := b.UpdateLater(func(l *ledger.Ledger) error { return l.Restore(c, nil) }); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk is full")
	b.fail = full
	if err := b.Save(); !errors.Is(err, full) || !b.conditions.Has(conditions.Record) {
		t.Errorf("%v, condition %v", err, b.conditions.Has(conditions.Record))
	}
	b.fail = nil
	if b.SaveAgain(); b.conditions.Has(conditions.Record) {
		t.Error("the condition stays")
	}
	if found, err := b.Load(); err != nil || len(found.Grants) != 1 || found.Unrecorded {
		t.Errorf("%+v, %v", found, err)
	}
	c.ID, c.Owner.Container = "y", "other"
	if err := b.Update(func(l *ledger.Ledger) error { return l.Restore(c, nil) }); err != nil {
		t.Error(err)
	}
	if found, err := b.Load(); err != nil || len(found.Grants) != 2 {
		t.Errorf("after Update: %+v, %v", found, err)
	}
	if err := os.WriteFile(b.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := b.Load()
	if err != nil || !found.Unrecorded || !found.Damaged {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := os.Stat(b.path + ".damaged"); err != nil {
		t.Error(err)
	}
}

// View is one picture of grants and GPUs, and an error of an Update is passed on.
func TestViewAndUpdate(t *testing.T) {
	t.Parallel()
	b := newBench(t, boot)
	err := b.Update(func(l *ledger.Ledger) error { return l.Release("no-one") })
	if !errors.Is(err, sharing.ErrNotFound) {
		t.Error(err)
	}
	err = b.Update(func(l *ledger.Ledger) error {
		return errors.Join(l.SetInventory([]sharing.GPU{{UUID: "a", Memory: 1 << 30}}),
			l.Restore(ledger.Reservation{ID: "x"}, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	grants, gpus := b.View()
	if len(grants) != 1 || len(gpus) != 1 {
		t.Errorf("%d grants, %d GPUs", len(grants), len(gpus))
	}
	if g, ok := b.Get("x"); !ok || g.ID != "x" {
		t.Errorf("%+v, %v", g, ok)
	}
}

// The checkpoint names a shared MIG instance by its text form. What is no such form makes the grant unreadable.
func TestPlacementsOnRecord(t *testing.T) {
	t.Parallel()
	in := sharing.Instance{Profile: "3g.40gb", ID: 9, Start: 4, Size: 4}
	want := sharing.Placement{{GPU: in.On("GPU-a"), Memory: 1}, {GPU: sharing.GPURef{UUID: "GPU-b"}, Memory: 2,
		MIG: in}, {GPU: sharing.GPURef{UUID: "GPU-c"}, Whole: true}}
	written := store.Recorded(ledger.Reservation{ID: "k", Placement: want}, ledger.Attachment{})
	var names []string
	for _, f := range written.Shares {
		names = append(names, f.GPU)
	}
	if d := cmp.Diff([]string{"GPU-a/3g.40gb@4", "GPU-b", "GPU-c"}, names); d != "" {
		t.Error(d)
	}
	written.Level = sharing.LevelUserspace.String()
	read, _, err := store.Read(written)
	if d := cmp.Diff(want, read.Placement); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	written.Shares[0].GPU = "GPU-a/3g.40gb"
	if _, _, err := store.Read(written); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("half an identity: %v", err)
	}
}

// The names of claims survive a restart, and a container's annotation has them.
func TestClaimsOnRecord(t *testing.T) {
	t.Parallel()
	want := ledger.Reservation{ID: "k", Terms: ledger.Terms{Level: sharing.LevelDriver, Backend: sharing.BackendDriver,
		Requests: []sharing.ResourceRequest{sharing.ClaimRequest("11111111-0000-4000-8000-000000000000", "gpu")},
		Claims:   []string{"train-gpu-x7k2p/gpu"}}}
	note, err := record.EncodeGrant(store.Recorded(want, ledger.Attachment{}))
	if err != nil {
		t.Fatal(err)
	}
	written, err := record.DecodeGrant(note)
	if err != nil {
		t.Fatal(err)
	}
	read, _, err := store.Read(written)
	if d := cmp.Diff(want.Terms, read.Terms); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
}
