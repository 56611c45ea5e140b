// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/gpusim/model"
)

// capsOf lists the capability files of instances with their numbers, and the nodes.
func capsOf(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || e.IsDir():
		case strings.HasPrefix(path, "proc/driver/nvidia/capabilities/gpu"):
			text, err := fs.ReadFile(root, path)
			first, _, _ := strings.Cut(string(text), "\n")
			all = append(all, strings.TrimPrefix(path, "proc/driver/nvidia/capabilities/")+" "+strings.TrimPrefix(first, "DeviceFileMinor: "))
			return err
		case strings.HasPrefix(path, "dev/nvidia-caps/"):
			all = append(all, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// Each instance has its files, with the number that the table has for its id; numbers belong to ids and are given again.
func TestCapabilityFiles(t *testing.T) {
	n := start(t, load(t, "mixed"), "r615")
	want := []string{
		"gpu1/mig/gi1/access 147", "gpu1/mig/gi1/ci0/access 148", "gpu1/mig/gi2/access 156", "gpu1/mig/gi2/ci0/access 157",
		"gpu1/mig/gi3/access 165", "gpu1/mig/gi3/ci0/access 166", "gpu1/mig/gi4/access 174", "gpu1/mig/gi4/ci0/access 175",
		"nvidia-cap1", "nvidia-cap147", "nvidia-cap148", "nvidia-cap156", "nvidia-cap157", "nvidia-cap165", "nvidia-cap166",
		"nvidia-cap174", "nvidia-cap175", "nvidia-cap2",
	}
	if d := cmp.Diff(want, capsOf(t, n.dir)); d != "" {
		t.Errorf("at the start (-want +got):\n%s", d)
	}
	table, err := os.ReadFile(filepath.Join(n.dir, "proc/driver/nvidia-caps/mig-minors"))
	if lines := strings.Split(string(table), "\n"); err != nil || len(lines) != 4323 || lines[0] != "config 1" || lines[4321] != "gpu31/gi14/ci7/access 4322" ||
		!slices.Contains(lines, "gpu1/gi4/ci0/access 175") {
		t.Errorf("table of %d lines, %v", len(lines), err)
	}
	cut := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n.d.mu.Lock()
	cut(n.d.model.DestroyCI(1, true, 2, 0))
	cut(n.d.model.DestroyGI(1, true, 2))
	cut(n.d.model.DestroyCI(1, true, 3, 0))
	n.d.showCaps()
	n.d.mu.Unlock()
	want = slices.DeleteFunc(want, func(s string) bool {
		return strings.Contains(s, "gi2/") || strings.Contains(s, "gi3/ci0") || slices.Contains([]string{"nvidia-cap156", "nvidia-cap157", "nvidia-cap166"}, s)
	})
	if d := cmp.Diff(want, capsOf(t, n.dir)); d != "" {
		t.Errorf("after destroying (-want +got):\n%s", d)
	}
	n.d.mu.Lock()
	cut(n.d.model.Apply([]int{1}, model.Change{Reboot: true}, now()))
	n.d.showCaps()
	n.d.mu.Unlock()
	if d := cmp.Diff([]string{"nvidia-cap1", "nvidia-cap2"}, capsOf(t, n.dir)); d != "" {
		t.Errorf("after a reboot (-want +got):\n%s", d)
	}
}
