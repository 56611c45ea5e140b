// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
)

// TestEnable is in this package because enabling a controller changes the root of cgroup v2. keepControllers restores
// it, and two test programs that restore it at the same time leave it changed.
//
// Kerf enables dmem. A kernel without it has other controllers to show the mechanism with.
func TestEnable(t *testing.T) {
	h, group := delegated(t)
	if err := h.Enable(group, "no-such-controller"); err == nil {
		t.Error("a controller that does not exist was enabled")
	}
	if err := h.Enable(group+"/none", "pids"); err == nil {
		t.Error("a group that does not exist was changed")
	}
	if err := h.Enable("../x", "pids"); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a path out of the tree: %v", err)
	}
	offered, err := h.Controllers()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(offered, func(c string) bool { return c == "dmem" || c == "hugetlb" || c == "pids" })
	if i < 0 {
		t.Skip("not supported: this kernel offers none of dmem, hugetlb, pids to cgroup v2")
	}
	for range 2 { // again changes nothing
		if err := h.Enable(group, offered[i]); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := h.Create(group + "/leaf")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(leaf.Dir, "cgroup.controllers"))
	if err != nil || !slices.Contains(strings.Fields(string(got)), offered[i]) {
		t.Errorf("group %q has controllers %q (%v), want %q among them", leaf.Dir, got, err, offered[i])
	}
}

// delegated makes a cgroup three levels below the root, until the test ends.
func delegated(t *testing.T) (h cgroup.Hierarchy, group string) {
	t.Helper()
	needRoot(t)
	h, err := cgroup.Default()
	if errors.Is(err, sharing.ErrUnsupported) {
		t.Skip("not supported:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	base := fmt.Sprintf("kerf-test-%d-delegation", os.Getpid())
	top, err := h.Create(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := top.Remove(); err != nil {
			t.Error(err)
		}
	})
	group = base + "/a/b"
	if _, err := h.Create(group); err != nil {
		t.Fatal(err)
	}
	return h, group
}
