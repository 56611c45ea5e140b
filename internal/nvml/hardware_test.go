// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestArchitectureName(t *testing.T) {
	for a, want := range map[nvml.DeviceArchitecture]string{nvml.DEVICE_ARCH_AMPERE: "ampere",
		nvml.DEVICE_ARCH_HOPPER: "hopper", nvml.DEVICE_ARCH_BLACKWELL: "blackwell", nvml.DEVICE_ARCH_UNKNOWN: "",
		99: ""} {
		if got := architectureName(a); got != want {
			t.Errorf("%d is %q, want %q", a, got, want)
		}
	}
}

func TestCUDA(t *testing.T) {
	for version, want := range map[int]string{0: "", 12080: "12.8", 13000: "13.0"} {
		if got := (System{CUDAVersion: version}).CUDA(); got != want {
			t.Errorf("%d is %q, want %q", version, got, want)
		}
	}
}

// TestPCIRoot reads a sysfs with a GPU below two bridges, one below something else, and none.
func TestPCIRoot(t *testing.T) {
	sysfs := t.TempDir()
	links := filepath.Join(sysfs, "bus/pci/devices")
	for name, target := range map[string]string{
		"0000:3b:00.0": "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0",
		"0000:01:00.0": "devices/platform/0000:01:00.0",
	} {
		full := filepath.Join(sysfs, target)
		if err := os.MkdirAll(full, 0o755); err != nil { // As in sysfs.
			t.Fatal(err)
		}
		if err := os.MkdirAll(links, 0o755); err != nil { // As in sysfs.
			t.Fatal(err)
		}
		if err := os.Symlink(full, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	for addr, want := range map[pciAddress]string{{0, 0x3b, 0}: "pci0000:3a", {0, 1, 0}: "", {0, 2, 0}: ""} {
		if got := pciRoot(sysfs, addr); got != want {
			t.Errorf("%s is below %q, want %q", addr, got, want)
		}
	}
}
