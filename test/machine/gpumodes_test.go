// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// simModes is the part of gpusim's list of GPUs that tells their modes.
type simModes struct {
	TimeSlice   string `json:"time_slice"`
	ComputeMode int    `json:"compute_mode"`
}

// wantModes waits until all the GPUs have these.
func (m *machine) wantModes(slice string, mode int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("time slice %s and compute mode %d", slice, mode), func() error {
		r := m.gpusim("gpus", "-o", "json")
		for i, g := range decode[[]simModes](m.t, r.out) {
			if g.TimeSlice != slice || g.ComputeMode != mode {
				return fmt.Errorf("gpu %d has %+v", i, g)
			}
		}
		return nil
	})
}

// removed takes the agent off the machine, as far as it is this test's: it sees no cgroups, since those of other tests'
// grants are below the same one.
func (m *machine) removed(more ...string) {
	m.t.Helper()
	argv := append([]string{
		"-c", `mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"`,
		program("kerf-agent"), "uninstall", "--run-dir", m.dir, "--state-dir", stateDir(m.dir), "--cdi-dir",
		m.work + "/cdi",
		"--hook-dir", m.work + "/hooks",
	}, more...)
	cmd := exec.Command("sh", argv...)
	cmd.Env = m.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("kerf-agent uninstall: %v\n%s", err, out)
	}
}

// An agent that was killed puts nothing back: its removal does, and then leaves no file. A second time it finds nothing
// to do.
func TestRemovePutsBackGPUSettings(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools: [{name: default, mode: whole, timeSlice: " +
		"short, computeMode: exclusiveProcess, powerLimitWatts: 50}]\n")}
	m.startAgent()
	m.ready()
	m.wantModes("Short", 3)
	set := map[int]uint64{0: 50, 1: 50, 2: 50, 3: 50}
	m.wantRules([]int{0, 1, 2, 3}, set)
	m.killAgent()
	m.wantModes("Short", 3)
	for range 2 {
		m.removed()
		m.wantModes("Default", 0)
		if err := m.watts(map[int]uint64{0: 70, 1: 70, 2: 70, 3: 70}); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{m.dir, stateDir(m.dir)} {
		if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
			t.Errorf("%d files are left in %s", len(left), dir)
		}
	}
}

// Kerf sets a pool's time slice and compute mode on the GPUs, and changes them with the config. They survive a crash of
// the agent, and the agent restores the old ones at its end.
func TestGPUModes(t *testing.T) {
	t.Parallel()
	pool := func(fields string) string {
		return head + "spec:\n  pools: [{name: default, mode: whole" + fields + "}]\n"
	}
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(pool(", timeSlice: short, computeMode: exclusiveProcess"))}
	m.startAgent()
	m.ready()
	m.wantModes("Short", 3)
	m.write(pool(", timeSlice: long"))
	m.wantModes("Long", 0)
	m.killAgent()
	m.write(pool(""))
	m.wantModes("Long", 0) // no agent was there to restore it
	m.startAgent()
	m.ready()
	m.wantModes("Default", 0)
	m.write(pool(", timeSlice: medium, computeMode: exclusiveProcess"))
	m.wantModes("Medium", 3)
	m.agent.signal(syscall.SIGTERM)
	<-m.agent.exited
	m.wantModes("Default", 0)
	m.startAgent()
	m.ready()
	m.wantModes("Medium", 3)
}

// MPS of an agent that was killed ends with the removal, which restores the compute mode that the agent found, unless
// it is to leave the settings.
func TestRemoveEndsMPS(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags []string
		mode  int
	}{"restores": {nil, modeDefault}, "leaves": {[]string{"--leave-gpu-settings"}, modeExclusive}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMPSUsers(t, "")
			one := m.holds(ann, "ann")
			m.wantDomains(2, modeExclusive)
			m.killAgent()
			one.end()
			for range 2 {
				m.removed(c.flags...)
				m.wantDomains(0, c.mode)
			}
			if left, err := os.ReadDir(m.dir); err == nil && len(left) > 0 {
				t.Errorf("%d files are left in %s", len(left), m.dir)
			}
		})
	}
}
