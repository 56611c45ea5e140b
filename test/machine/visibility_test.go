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
)

// sockets are the device files of the machine's GPUs.
func (m *machine) sockets() []string {
	var all []string
	for _, g := range m.state().GPUs {
		all = append(all, fmt.Sprintf("%s/dev/nvidia%d", m.sim, g.Index))
	}
	slices.Sort(all)
	return all
}

// probe starts the test binary as a tenant's program that tries every device file.
func (m *machine) probe(flags []string, changes ...how) map[string]string {
	m.t.Helper()
	path := filepath.Join(m.work, "probe")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		self, err := os.Executable()
		if err == nil {
			err = copyProgram(self, path)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	r := m.run(flags, append([]string{"env", helperEnv + "=1", path}, m.sockets()...), changes...)
	if got := r.wait(); got.code != 0 {
		m.t.Fatalf("probe: %v", got)
	}
	answers := map[string]string{}
	for line := range strings.Lines(r.stdout()) {
		answer, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		answers[name] = answer
	}
	return answers
}

// A program that root starts reaches its own GPU and no other, whatever it does to its environment, and
// nothing of that is left behind.
func TestRootSeesItsOwnGPUOnly(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4", driver: driver})
			before := mounts(t, m.base)
			pin := flags("--memory 2GiB --gpu-uuid " + m.uuid(2))
			answers := m.probe(pin)
			for i := range 4 {
				want := "shut"
				if i == 2 {
					want = "open"
				}
				if got := answers[fmt.Sprintf("nvidia%d", i)]; got != want {
					t.Errorf("device file of GPU %d is %q, want %q", i, got, want)
				}
			}
			bare := []string{"env", "-u", "CUDA_VISIBLE_DEVICES"}
			if r := m.run(pin, append(bare, load("--alloc 1GiB --gpu 1")...)).wait(); r.code != 9 ||
				strings.Contains(r.out, oom) {
				t.Errorf("a second device: %v, want an error that there is none", r)
			}
			if r := m.run(pin, append(bare, load("--alloc 1GiB --gpu 0")...)).wait(); r.code != 0 {
				t.Errorf("its own device: %v", r)
			}
			for _, s := range m.sockets() {
				if err := connect(s); err != nil {
					t.Errorf("outside of the grant: %s: %v", s, err)
				}
			}
			m.noGrants()
			eventually(t, "the mounts of ended grants are gone", func() error {
				if after := mounts(t, m.base); after != before {
					return fmt.Errorf("%d mounts in %s, %d before", after, m.base, before)
				}
				return nil
			})
			checkInvariants(t, m)
		})
	}
}

// asNobody makes the machine usable for a user without rights: the programs lie where it can execute them.
func asNobody(t *testing.T, m *machine) (kerf, gpuload string) {
	t.Helper()
	kerf, gpuload = filepath.Join(m.work, "kerf"), filepath.Join(m.work, "gpuload")
	if err := errors.Join(copyProgram(program("kerf"), kerf), copyProgram(program("gpuload"), gpuload)); err != nil {
		t.Fatal(err)
	}
	return kerf, gpuload
}

// A member of the socket's group needs no other right: it runs capped, and where it cannot hide the other
// GPUs, the least limit keeps it off them.
func TestUserInTheGroupIsHeldByLimits(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", agentFlags: []string{"--group", "nogroup"}})
	kerf, gpuload := asNobody(t, m)
	user := func(flags string, argv ...string) *run {
		r := m.run(strings.Fields(flags), argv, asUser(nogroup, nogroup), withProgram(kerf))
		return r
	}
	pin := "--memory 3GiB --min-enforcement driver --gpu-uuid " + m.uuid(1)
	own := user(pin, gpuload, "--json", "--alloc", "6GiB", "--step", "128MiB", "--hold", "1h")
	got := own.loads(1)[0]
	wantLoad(t, got, oom, 3*gib-contextT4-128*mib, 3*gib-contextT4)
	s := m.state()
	if len(s.Grants) != 1 || s.Grants[0].UID != nogroup || s.Grants[0].Level != "driver" {
		t.Errorf("grants of the user: %+v", s.Grants)
	}
	checkInvariants(t, m)
	own.end()
	m.noGrants()

	// All GPUs reachable and none hidden by the environment: the others give no byte.
	for device := range 4 {
		r := user(pin, "env", "-u", "CUDA_VISIBLE_DEVICES", gpuload, "--json", "--alloc", "1GiB", "--gpu",
			fmt.Sprint(device))
		got := r.wait()
		l := r.loads(1)[0]
		if want := map[bool]string{true: "", false: oom}[device == 1]; l.err() != want {
			t.Errorf("GPU %d for a user who was given GPU 1: %v, %s; want error %q", device, l, got.err, want)
		}
	}
	if r := m.kerf("status", "--wait", "grants=0"); r.code != 0 {
		t.Errorf("grants do not end: %v", r)
	}
	checkInvariants(t, m)
}

// A user who is not in the group gets an error, and the remedy.
func TestUserOutsideTheGroupIsRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", agentFlags: []string{"--group", "nogroup"}})
	kerf, _ := asNobody(t, m)
	r := m.run(flags("--memory 1GiB"), []string{"true"}, asUser(nogroup, 54321), withProgram(kerf)).wait()
	if r.code != 125 || !strings.Contains(r.err, "permission") || !strings.Contains(r.err, "group") {
		t.Errorf("run outside of the group: %v", r)
	}
	if len(m.state().Grants) != 0 {
		t.Error("something was granted")
	}
}
