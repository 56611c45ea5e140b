// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// NVIDIA's tools find a driver by these files.
func TestRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("device files need root")
	}
	dir, libs := place(t)
	ok(t, "start", "--machine", "mixed", "--driver", "r615", "--dir", dir, "--lib-dir", libs)
	tree := filepath.Join(filepath.Dir(dir), "root")
	if code, _, stderr := gpusim(t, "root", "--dir", dir); code == 0 {
		t.Errorf("without a folder: %q", stderr)
	}
	for range 2 { // over the first one
		ok(t, "root", tree, "--dir", dir)
	}
	list := gpus(t, dir)
	pci := strings.ToLower(strings.TrimPrefix(list[3].PCI, "0000"))
	for name, want := range map[string]string{
		"usr/lib/x86_64-linux-gnu/libcuda.so":             "r615",
		"usr/lib/x86_64-linux-gnu/libcuda.so.1":           "r615",
		"usr/lib/x86_64-linux-gnu/libcuda.so.615.71.09":   "r615",
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1":      "r615",
		"proc/driver/nvidia/version":                      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  615.71.09 ",
		"proc/driver/nvidia/params":                       "ResmanDebugLevel",
		"proc/driver/nvidia/gpus/" + pci + "/information": "Model: \t\t Tesla T4",
		"proc/driver/nvidia/capabilities/mig/config":      "DeviceFileMinor: 1\n",
		"proc/modules":                              "nvidia_uvm ",
		"proc/devices":                              "Character devices:\n195 nvidia-frontend",
		"sys/bus/pci/devices/" + pci + "/vendor":    "0x10de",
		"sys/bus/pci/devices/" + pci + "/device":    "0x1eb8",
		"sys/bus/pci/devices/" + pci + "/config":    "\xde\x10\xb8\x1e",
		"sys/bus/pci/devices/" + pci + "/numa_node": "1\n",
	} {
		if got, err := os.ReadFile(filepath.Join(tree, name)); err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s: %.80q, %v; want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]uint64{
		"nvidiactl": unix.Mkdev(195, 255), "nvidia3": unix.Mkdev(195, 3), "nvidia-uvm": unix.Mkdev(510, 0),
		"nvidia-caps/nvidia-cap1": unix.Mkdev(237, 1),
	} {
		var st unix.Stat_t
		err := unix.Stat(filepath.Join(tree, "dev", name), &st)
		if err != nil || st.Mode != unix.S_IFCHR|0o666 || st.Rdev != want {
			t.Errorf("device %s: mode %o, number %#x, %v", name, st.Mode, st.Rdev, err)
		}
	}
}

// A program in the tree's namespace finds these files where a driver installs them, and the machine has none of them.
func TestEnterRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir, libs := place(t)
	ok(t, "start", "--machine", "t4x4", "--driver", "r580", "--dir", dir, "--lib-dir", libs)
	script := "cat /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05; test -c /dev/nvidia3 && test -c /dev/null && " +
		"test -S /run/gpusim/dev/nvidia3 && grep -c ^nvidia /proc/modules && grep -c 580.95.05 " +
		"/proc/driver/nvidia/version && " +
		"ls /sys/bus/pci/devices | wc -l; grep -c Threads /proc/self/status; exit 3"
	code, out, stderr := gpusim(t, "root", filepath.Join(filepath.Dir(dir), "root"), "--dir", dir, "--", "sh", "-c",
		script)
	if want := "r5803\n1\n4\n1\n"; code != 3 || out != want {
		t.Errorf("exit %d, %q, want %q; %s", code, out, want, stderr)
	}
	if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"); err == nil {
		t.Error("the machine has the library, too")
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), fmt.Sprint(filepath.Dir(dir), "/root")) {
		t.Errorf("mounts stay: %v\n%s", err, mounts)
	}
}
