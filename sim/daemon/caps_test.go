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

	"github.com/kerf-gpu/kerf/sim/model"
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
			all = append(all, strings.TrimPrefix(path, "proc/driver/nvidia/capabilities/")+" "+strings.TrimPrefix(first,
				"DeviceFileMinor: "))
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

// inTable reads the driver's list of all numbers.
func inTable(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "proc/driver/nvidia-caps/mig-minors"))
	if err != nil {
		t.Fatal(err)
	}
	table, numbers := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if numbers[number] {
			t.Fatalf("the number %s is in the table twice", number)
		}
		table[name], numbers[number] = number, true
	}
	return table
}

// Each instance has its files, with the number that the table has for its id. An instance that reuses an id has other
// numbers, before and after a reboot. Other instances get its old numbers.
func TestCapabilityFiles(t *testing.T) {
	n := start(t, load(t, "mixed"), "r615")
	want := []string{
		"gpu1/mig/gi1/access 147", "gpu1/mig/gi1/ci0/access 148", "gpu1/mig/gi2/access 156",
		"gpu1/mig/gi2/ci0/access 157",
		"gpu1/mig/gi3/access 165", "gpu1/mig/gi3/ci0/access 166", "gpu1/mig/gi4/access 174",
		"gpu1/mig/gi4/ci0/access 175",
		"nvidia-cap1", "nvidia-cap147", "nvidia-cap148", "nvidia-cap156", "nvidia-cap157", "nvidia-cap165",
		"nvidia-cap166",
		"nvidia-cap174", "nvidia-cap175", "nvidia-cap2",
	}
	if d := cmp.Diff(want, capsOf(t, n.dir)); d != "" {
		t.Errorf("at the start (-want +got):\n%s", d)
	}
	table, err := os.ReadFile(filepath.Join(n.dir, "proc/driver/nvidia-caps/mig-minors"))
	if lines := strings.Split(string(table), "\n"); err != nil || len(lines) != 4323 || lines[0] != "config 1" ||
		lines[4321] != "gpu31/gi14/ci7/access 4322" ||
		!slices.Contains(lines, "gpu1/gi4/ci0/access 175") {
		t.Errorf("table of %d lines, %v", len(lines), err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n.d.mu.Lock()
	check(n.d.model.DestroyCI(1, true, 2, 0))
	check(n.d.model.DestroyGI(1, true, 2))
	check(n.d.model.DestroyCI(1, true, 3, 0))
	n.d.showCaps()
	n.d.mu.Unlock()
	want = slices.DeleteFunc(want, func(s string) bool {
		return strings.Contains(s, "gi2/") || strings.Contains(s, "gi3/ci0") ||
			slices.Contains([]string{"nvidia-cap156", "nvidia-cap157", "nvidia-cap166"}, s)
	})
	if d := cmp.Diff(want, capsOf(t, n.dir)); d != "" {
		t.Errorf("after destroying (-want +got):\n%s", d)
	}
	had := capsOf(t, n.dir)
	recreate := func() {
		n.d.mu.Lock()
		defer n.d.mu.Unlock()
		for _, gi := range []uint64{2, 3} { // the lowest ids that are free
			if list, err := n.d.model.Instances(1); err == nil &&
				!slices.ContainsFunc(list, func(in model.Instance) bool { return in.GI == gi }) {
				id, err := n.d.model.CreateGI(1, true, 19, model.AnyStart)
				if check(err); id != gi && id != gi-1 {
					t.Errorf("id %d", id)
				}
			}
		}
		list, err := n.d.model.Instances(1)
		check(err)
		for _, in := range list {
			if len(in.Computes) == 0 {
				_, err := n.d.model.CreateCI(1, true, in.GI, model.Whole, model.AnyStart)
				check(err)
			}
		}
		n.d.showCaps()
	}
	numbers := func() map[string]string {
		out, table := map[string]string{}, inTable(t, n.dir)
		for _, line := range capsOf(t, n.dir) {
			name, number, instance := strings.Cut(line, " ")
			if !instance {
				continue
			}
			name = strings.Replace(name, "/mig/", "/", 1)
			if table[name] != number || number == "" {
				t.Errorf("%s has the number %s, and %s in the table", name, number, table[name])
			}
			out[name] = number
		}
		return out
	}
	recreate()
	again := numbers()
	if again["gpu1/gi2/access"] == "156" || again["gpu1/gi2/ci0/access"] == "157" ||
		again["gpu1/gi1/access"] != "147" || len(again) != 8 {
		t.Errorf("made again: %v after %q", again, had)
	}
	n.d.mu.Lock()
	check(n.d.model.Apply([]int{1}, model.Change{Reboot: true}, now()))
	n.d.showCaps()
	n.d.mu.Unlock()
	if d := cmp.Diff([]string{"nvidia-cap1", "nvidia-cap2"}, capsOf(t, n.dir)); d != "" {
		t.Errorf("after a reboot (-want +got):\n%s", d)
	}
	n.d.mu.Lock()
	_, err = n.d.model.SetMIGMode(1, model.Caller{Root: true}, 1)
	check(err)
	n.d.mu.Unlock()
	recreate()
	for name, number := range numbers() {
		if again[name] == number {
			t.Errorf("after a reboot %s has the number %s again", name, number)
		}
	}
}
