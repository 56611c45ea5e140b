// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
)

// readOnlyCgroups runs a program to its end in a mount namespace in which cgroup v2 is mounted read-only, as in most
// containers.
func (m *machine) readOnlyCgroups(argv ...string) result {
	m.t.Helper()
	h, err := cgroup.Default()
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.CommandContext(m.t.Context(), "sh",
		append([]string{"-c", `mount -o remount,bind,ro "$0" && exec "$@"`, h.Mount}, argv...)...)
	cmd.Env = m.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // the result tells
	return resultOf(cmd.ProcessState, out.String(), errOut.String())
}

// Where no cgroup can be made, doctor says so and offers no level, and the agent does not start.
func TestReadOnlyCgroups(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	remedy := "mount -o remount,bind,rw"
	got := m.readOnlyCgroups(program("kerf"), "--run-dir", m.dir, "doctor")
	for _, want := range []string{"read-only file system", remedy, "no group can be created"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("doctor does not say %q:\n%s", want, got.out)
		}
	}
	if !strings.Contains(got.out, "This machine cannot enforce GPU grants.") {
		t.Errorf("doctor offers levels:\n%s", got.out)
	}
	got = m.readOnlyCgroups(program("kerf-agent"), "--run-dir", m.dir, "--state-dir", stateDir(m.dir))
	wantError(t, got, 1, "no grant can have a cgroup", "read-only file system", remedy)
	m.startAgent()
	m.ready() // nothing of the refused one is in the way
}
