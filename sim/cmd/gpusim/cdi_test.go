// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// TestCDISpec reads the spec as a container runtime does.
func TestCDISpec(t *testing.T) {
	dir, libs := place(t)
	ok(t, "start", "--machine", "t4x4", "--dir", dir, "--lib-dir", libs)
	specs := t.TempDir()
	if err := os.WriteFile(filepath.Join(specs, "nvidia.json"), []byte(ok(t, "cdi", "--dir", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(specs), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if errs := cache.GetErrors(); len(errs) > 0 {
		t.Fatalf("the spec is refused: %v", errs)
	}
	g := gpus(t, dir)
	devices := func(name string) []string { // the paths that a device brings
		t.Helper()
		d := cache.GetDevice("nvidia.com/gpu=" + name)
		if d == nil {
			t.Fatalf("no device %s among %v", name, cache.ListDevices())
		}
		var paths []string
		for _, m := range d.ContainerEdits.Mounts {
			if m.HostPath != filepath.Join(dir, m.ContainerPath) {
				t.Errorf("%s: %s is mounted at %s", name, m.HostPath, m.ContainerPath)
			}
			if _, err := os.Stat(m.HostPath); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			paths = append(paths, m.ContainerPath)
		}
		return paths
	}
	for name, want := range map[string]string{
		"0": "/dev/nvidia0", "3": "/dev/nvidia3", g[2].UUID: "/dev/nvidia2",
		"all": "/dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3",
	} {
		if got := strings.Join(devices(name), " "); got != want {
			t.Errorf("%s brings %q, want %q", name, got, want)
		}
	}
	if n := len(cache.ListDevices()); n != 2*len(g)+1 {
		t.Errorf("%d devices for %d GPUs: %v", n, len(g), cache.ListDevices())
	}

	var common []string
	for _, m := range cache.GetDevice("nvidia.com/gpu=all").GetSpec().ContainerEdits.Mounts {
		if _, err := os.Stat(m.HostPath); err != nil {
			t.Error(err)
		}
		common = append(common, m.ContainerPath)
	}
	slices.Sort(common)
	want := []string{"/dev/nvidiactl", "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
		"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}
	if !slices.Equal(common, want) {
		t.Errorf("every container gets %v, want %v", common, want)
	}
}
