// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// dmem is what this is for. A kernel without it has other controllers to show the mechanism with.
func TestEnable(t *testing.T) {
	h, rel := scratch(t)
	parent, err := h.Create(rel + "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Enable(rel+"/a/b", "no-such-controller"); err == nil {
		t.Error("a controller that does not exist was enabled")
	}
	if err := h.Enable(rel+"/none", "pids"); err == nil {
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
	name := offered[i]
	root := filepath.Join(h.Mount, "cgroup.subtree_control")
	before, err := os.ReadFile(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !slices.Contains(fields(before), name) {
			_ = os.WriteFile(filepath.Join(h.Mount, rel, "a/b/cgroup.subtree_control"), []byte("-"+name), 0)
			_ = os.WriteFile(filepath.Join(h.Mount, rel, "a/cgroup.subtree_control"), []byte("-"+name), 0)
			_ = os.WriteFile(filepath.Join(h.Mount, rel, "cgroup.subtree_control"), []byte("-"+name), 0)
			_ = os.WriteFile(root, []byte("-"+name), 0)
		}
	})
	for range 2 { // again changes nothing
		if err := h.Enable(rel+"/a/b", name); err != nil {
			t.Fatal(err)
		}
	}
	child, err := h.Create(rel + "/a/b/leaf")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(child.Dir, "cgroup.controllers"))
	if err != nil || !slices.Contains(fields(got), name) {
		t.Errorf("a group beneath %q has controllers %q (%v), want %q among them", parent.Dir, got, err, name)
	}
}

func fields(b []byte) []string { return strings.Fields(string(b)) }
