// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"strings"
	"testing"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// Each instance is drawn at its place, with its owner. A GPU without MIG support is left out.
func TestSlices(t *testing.T) {
	s := FromNode(&nodeapi.GetNodeResponse{Gpus: []*nodeapi.GPU{
		{Index: 0, Model: "H100", Mig: true, MigState: &nodeapi.MIGState{
			Capable: true, Enabled: true, MemorySlices: 8, PendingReason: "waits for a reset\x1b[2J",
			Instances: []*nodeapi.MIGInstance{
				{Profile: "1g.10gb", Start: 2, MemorySlices: 1, Managed: true, Ready: true, RequestedBy: "pod a/b",
					Uuid: "MIG-1"},
				{Profile: "1g.10gb", Start: 3, MemorySlices: 1, Ready: true},
				{Profile: "3g.40gb", Start: 4, MemorySlices: 4, Managed: true, RequestedBy: "grant k-1"},
				{Profile: "9g", Start: 7, MemorySlices: 900, Managed: true, Ready: true},
			},
		}},
		{Index: 1, Model: "T4", MigState: &nodeapi.MIGState{}},
		{Index: 2, Model: "L40S"},
		{Index: 3, Model: "A100", MigState: &nodeapi.MIGState{Capable: true, MemorySlices: 8, LayoutFromPool: true}},
		{Index: 4, Model: "H100", MigState: &nodeapi.MIGState{Capable: true, MemorySlices: 8, SwitchableTo: "mig"}},
		{Index: 5, Model: "H100", MigState: &nodeapi.MIGState{Capable: true, MemorySlices: 8, SwitchableTo: "mig",
			ModeSwitchBlockedBy: "is held by pod a/c\x1b"}},
		{Index: 6, Model: "H100", MigState: &nodeapi.MIGState{Capable: true, Enabled: true, MemorySlices: 8,
			SwitchableTo:  "shared",
			ModeSwitchFor: "pod a/d"}},
	}})
	got := Slices(s, Options{})
	for _, want := range []string{
		"GPU 0  H100\n  [..a#cccd]  created on demand\n", "a  1g.10gb  at 2  pod a/b",
		"#  1g.10gb  at 3  not made by Kerf",
		"c  3g.40gb  at 4  being created for grant k-1", "d  9g       at 7  free",
		"GPU 3  A100\n  [........]  not in MIG mode\n", "not as the pool says: waits for a reset",
		"GPU 4  H100\n  [........]  not in MIG mode\n  switches to MIG mode with demand\n",
		"switches to MIG mode with demand, but not now: it is held by pod a/c",
		"GPU 6  H100\n  [........]  created on demand\n  switches back from MIG mode now, for pod a/d\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "T4") || strings.Contains(got, "L40S") || strings.Contains(got, "\x1b") {
		t.Errorf("what is not to be there:\n%s", got)
	}
	if wide := Slices(s, Options{Wide: true}); !strings.Contains(wide, "MIG-1") {
		t.Errorf("no UUID:\n%s", wide)
	}
	if table := Table(s, Options{}); !strings.Contains(table, "[..a#cccd]") || strings.Contains(table, "GPU 3  A100") {
		t.Errorf("status:\n%s", table)
	}
	if none := Slices(Status{}, Options{}); !strings.Contains(none, "No GPU") {
		t.Errorf("%q", none)
	}
}
