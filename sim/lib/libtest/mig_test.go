// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"os"
	"strings"
	"testing"
)

// NVML's return codes for instances that cannot be created.
const (
	notFound     = "6"
	inUse        = "19"
	insufficient = "23"
)

// The oldest driver, too, creates MIG instances as a real library does.
func TestDaemonCreatesMIGInstances(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may cut")
	}
	for _, driver := range []string{"r550", "r615"} {
		t.Run(driver, func(t *testing.T) {
			dir := node(t, "mixed", driver)
			steps := []struct{ command, want string }{
				{"init", "0"},
				{"gi-create,1,19", insufficient},
				{"gi-create,0,19", notSupported},
				{"gi-create,1,14,1", invalidArgument},
				{"gi-create,1,77", invalidArgument},
				{"gi-destroy,1,2", inUse},
				{"gi-destroy,1,9", notFound},
				{"ci-destroy,1,2", "0"},
				{"ci-destroy,1,2", notFound},
				{"gi-destroy,1,2", "0"},
				{"gi-create,1,15,2", insufficient},
				{"gi-create,1,19,2", "0 gi=2 profile=19 at 2"},
				{"ci-create,1,2,4", notSupported},
				{"ci-create,1,2,0", "0"},
				{"ci-create,1,2,0", insufficient},
				{"ci-destroy,1,3", "0"},
				{"gi-destroy,1,3", "0"},
				{"gi-create,1,19", "0 gi=3 profile=19 at 3"},
				{"mig-mode,1,0", "0 activation=19 1 0"}, // it has instances
				{"mig-mode,1,1", "0 activation=0 1 1"},
				{"mig-mode,0,1", "0 activation=0 1 1"},
				{"gi-create,0,19,6", "0 gi=1 profile=19 at 6"},
				{"gi-destroy,0,1", "0"},
				{"mig-mode,0,0", "0 activation=0 0 0"},
				{"mig-mode,0,2", invalidArgument},
				{"mig-mode,2,1", notSupported},
			}
			var commands []string
			for _, s := range steps {
				commands = append(commands, s.command)
			}
			for i, got := range nvml(t, dir, commands...) {
				if want := steps[i].want; got != want && !strings.HasPrefix(got, want+" ") {
					t.Errorf("%s: %q, want %q", steps[i].command, got, want)
				}
			}
		})
	}
}

// A GPU before Hopper is reset by the call that changes its mode. A virtual machine cannot reset a GPU that is passed
// through to it; its host does. A reset destroys the instances.
func TestDaemonMIGModeNeedsAReset(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may set the mode")
	}
	dir := node(t, "a30x2", "r615")
	if got := nvml(t, dir, "init", "mig-mode,0,1", "gi-create,0,14,3", "mig-mode,0,0", "mig-mode,0,1", "gi-destroy,0,1",
		"mig-mode,0,0"); got[1] != "0 activation=0 1 1" ||
		got[3] != "0 activation=19 1 0" || got[4] != "0 activation=0 1 1" || got[6] != "0 activation=0 0 0" {
		t.Errorf("modes: %q", got)
	}
	set(t, dir, "gpu=0", "passthrough=true")
	for _, want := range []string{"0 activation=16 0 1", "0 activation=0 1 1"} {
		if got := nvml(t, dir, "init", "mig-mode,0,1")[1]; got != want {
			t.Errorf("mode: %q, want %q", got, want)
		}
		set(t, dir, "gpu=0", "reset=true")
	}
	if got := nvml(t, dir, "init", "gi-create,0,0")[1]; got != "0 gi=1 profile=0 at 0" {
		t.Errorf("after the reset: %q", got)
	}
	set(t, dir, "gpu=all", "reboot=true")
	if got := nvml(t, dir, "init", "gi-destroy,0,1", "mig-mode,0"); got[1] != notFound ||
		got[2] != "0 activation=0 1 1" {
		t.Errorf("after a reboot: %q", got)
	}
}

// Several compute instances share a GPU instance. Each is a MIG device.
func TestDaemonDividesAnInstance(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may cut")
	}
	dir := node(t, "mixed", "r615")
	const oneSlice, twoSlices, whole = "0", "1", "2"
	got := nvml(t, dir, "init", "ci-destroy,1,4", "ci-create,1,4,"+oneSlice, "ci-create,1,4,"+twoSlices,
		"ci-create,1,4,"+oneSlice,
		"ci-create,1,4,"+whole, "mig,1", "gi-destroy,1,4", "ci-destroy,1,4,1", "ci-create,1,4,"+oneSlice,
		"ci-create,1,4,"+oneSlice, "mig,1")
	for i, want := range map[int]string{2: "0", 3: insufficient, 4: "0", 5: insufficient, 7: inUse, 8: "0", 9: "0",
		10: "0"} {
		if got[i] != want {
			t.Errorf("command %d: %q, want %q: %q", i, got[i], want, got)
		}
	}
	for i, want := range map[int]int{6: 2, 11: 3} {
		if n := strings.Count(got[i], "MIG 1c.3g.40gb"); n != want {
			t.Errorf("%d devices of one slice, want %d: %s", n, want, got[i])
		}
	}
}

// A compute instance that is created again is another MIG device, and its place has no device in between.
func TestDaemonMIGDevicesAreNew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may cut")
	}
	dir := node(t, "mixed", "r615")
	device := func(text string) string {
		for part := range strings.SplitSeq(text, "[") {
			if strings.Contains(part, " gi=4 ") {
				return strings.Fields(part)[2]
			}
		}
		return ""
	}
	got := nvml(t, dir, "init", "mig,1", "ci-destroy,1,4", "mig,1", "ci-create,1,4,2", "mig,1")
	before, between, after := device(got[1]), device(got[3]), device(got[5])
	if !strings.HasPrefix(before, "MIG-") || between != "" || !strings.HasPrefix(after, "MIG-") || before == after {
		t.Errorf("MIG device %q, then %q, then %q: %q", before, between, after, got)
	}
}
