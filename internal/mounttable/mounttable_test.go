// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mounttable_test

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/mounttable"
)

func mounts(t *testing.T, lines ...string) []*mounttable.Mount {
	t.Helper()
	var out []*mounttable.Mount
	if err := mounttable.Each(strings.NewReader(strings.Join(lines, "\n")),
		func(m *mounttable.Mount) { out = append(out, m) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// A malformed line, and one that is longer than the library reads, hide no other mount.
func TestEach(t *testing.T) {
	long := "3 1 0:3 / /long rw - overlay overlay rw,lowerdir=" + strings.Repeat("/layer:", 10000)
	got := mounts(t, "malformed", long, "4 1 0:4 / /home ro,noexec - ext4 /dev/sda1 rw")
	if len(got) != 1 || got[0].Mountpoint != "/home" || got[0].Options != "ro,noexec" {
		t.Errorf("%d mounts: %+v", len(got), got)
	}
}

// The root folder of systemd machines comes after the mounts that the initial RAM disk made in it.
func TestOf(t *testing.T) {
	table := mounts(t, "22 28 0:21 / /sys rw - sysfs sysfs rw", "27 28 0:24 / /run rw - tmpfs tmpfs rw",
		"28 1 8:1 / / rw - ext4 /dev/sda1 rw", "30 28 8:2 / /home rw - ext4 /dev/sda2 rw")
	for path, want := range map[string]int{"/": 28, "/etc/cdi": 28, "/run/x": 27, "/runner": 28, "/sys": 22,
		"/home/a": 30} {
		if got := mounttable.Of(table, path); got == nil || got.ID != want {
			t.Errorf("%s: mount %v, want %d", path, got, want)
		}
	}
	// Mount 4 is on mount 2 at the same folder, and hides mount 3.
	stacked := mounts(t, "1 0 8:1 / / rw - ext4 a rw", "2 1 8:2 / /home rw - ext4 b rw",
		"3 2 8:3 / /home/a rw - ext4 c rw", "4 2 8:4 / /home rw - ext4 d rw")
	if got := mounttable.Of(stacked, "/home/a"); got == nil || got.ID != 4 {
		t.Errorf("a hidden mount: %v", got)
	}
	if got := mounttable.Of(mounts(t, "5 4 8:1 / /mnt rw - ext4 a rw"), "/mnt"); got != nil {
		t.Errorf("a table without a root: %v", got)
	}
}
