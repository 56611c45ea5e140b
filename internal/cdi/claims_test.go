// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestClaims: each request has one device with the hook that names it, and no device file.
func TestClaims(t *testing.T) {
	dir := t.TempDir()
	k := NewManager(dir, nil, Hook{Path: "/opt/kerf/kerf-hook", Socket: "/run/kerf/hook.sock"})
	path := filepath.Join(dir, "kerf.dev-claim.json")
	a, b := sharing.ClaimRequest("22222222-0000-4000-8000-000000000000", "gpu"),
		sharing.ClaimRequest("11111111-0000-4000-8000-000000000000", "gpu")
	if err := k.Claims([]sharing.ResourceRequest{a, b, a}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := parse(data)
	if err != nil || len(spec.Devices) != 2 {
		t.Fatalf("%v: %s", err, data)
	}
	for i, want := range []sharing.ResourceRequest{b, a} {
		d := spec.Devices[i]
		if d.Name != want.Claim || len(d.ContainerEdits.DeviceNodes) != 0 || len(d.ContainerEdits.Hooks) != 1 {
			t.Fatalf("device %+v, want %q", d, want.Claim)
		}
		h := d.ContainerEdits.Hooks[0]
		if name, ours := sharing.DeviceOfHook(h.Path, h.Args); !ours || name != want.Device() ||
			!slices.Contains(h.Args, "/run/kerf/hook.sock") {
			t.Errorf("hook %q is of %q", h.Args, name)
		}
	}
	if err := Conflicts(dir, []string{dir}); err != nil {
		t.Errorf("its file is a conflict: %v", err)
	}
	if err := Conflicts(t.TempDir(), []string{dir}); err == nil {
		t.Error("the file of another is no conflict")
	}
	for range 2 { // again is no error
		if err := k.Claims(nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the spec is left: %v", err)
	}
	if err := k.Claims([]sharing.ResourceRequest{{Resource: "gpu", Count: 1}}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("an amount: %v", err)
	}
}

// TestClaimsAreRestored: Reconcile makes the spec of ResourceClaims again after someone removed or edited it.
func TestClaimsAreRestored(t *testing.T) {
	k, own, _ := newKept(t)
	path := filepath.Join(own, "kerf.dev-claim.json")
	reconcile := func(what string, want ...string) {
		t.Helper()
		if got, err := k.Reconcile(small, node); err != nil || !slices.Equal(got.Written, want) {
			t.Errorf("%s: wrote %q, want %q (%v)", what, got.Written, want, err)
		}
	}
	if _, err := k.Reconcile(small, node); err != nil {
		t.Fatal(err)
	}
	if err := k.Claims([]sharing.ResourceRequest{sharing.ClaimRequest("11111111-0000-4000-8000-000000000000",
		"gpu")}); err != nil {
		t.Fatal(err)
	}
	want := mustRead(t, path)
	for what, harm := range map[string]func() error{
		"removed": func() error { return os.Remove(path) },
		"edited":  func() error { return os.WriteFile(path, slices.Repeat([]byte(" "), len(want)), 0o644) },
	} {
		reconcile("before " + what)
		reconcile("before " + what)
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		reconcile(what, "kerf.dev-claim.json")
		if got := mustRead(t, path); !slices.Equal(got, want) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if err := errors.Join(k.Claims(nil), os.WriteFile(path, want, 0o644)); err != nil {
		t.Fatal(err)
	}
	reconcile("without claims", "kerf.dev-claim.json")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without claims, the spec is left: %v", err)
	}
}
