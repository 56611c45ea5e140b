// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// cgroup2Magic is what statfs says of a cgroup v2 mount.
const cgroup2Magic = 0x63677270

// step is one thing that systemd does, or that an administrator has it do, while jobs run.
type step struct {
	name string
	do   func(*machine)
}

// steps are in their order: the last ones end the jobs.
func steps() []step {
	systemctl := func(args ...string) func(*machine) {
		return func(m *machine) { m.must("systemctl", args...) }
	}
	return []step{
		{"start", func(*machine) {}},
		{"daemon-reload", systemctl("daemon-reload")},
		{"daemon-reexec", systemctl("daemon-reexec")},
		{"property-of-slice", systemctl("set-property", "--runtime", "system.slice", "CPUWeight=50", "IOWeight=50",
			"MemoryHigh=90%")},
		{"property-taken-back", systemctl("revert", "system.slice")},
		{"property-of-agent", systemctl("set-property", "--runtime", "kerf-agent.service", "CPUQuota=90%",
			"TasksMax=500")},
		{"agent-restarts", func(m *machine) { m.agentAnew("restart", "kerf-agent.service") }},
		{"agent-killed", func(m *machine) { m.agentAnew("kill", "--signal=KILL", "kerf-agent.service") }},
		{"agent-of-a-new-unit", newUnit},
		{"reloads-while-the-agent-starts", reloads},
		{"service-stops-and-leaves-a-child", child},
		{"jobs-end", ends},
		{"job-afterwards", afterwards},
	}
}

// newUnit changes the agent's unit, as an upgrade of Kerf does.
func newUnit(m *machine) {
	m.write("/etc/systemd/system/kerf-agent.service.d/upgrade.conf",
		"[Service]\nEnvironment=UPGRADE=1\nLimitNOFILE=8192\n")
	m.must("systemctl", "daemon-reload")
	m.agentAnew("restart", "kerf-agent.service")
}

// reloads has systemd read its units again and again while the agent starts.
func reloads(m *machine) {
	m.agentAnew("restart", "--no-block", "kerf-agent.service")
	for range 5 {
		m.must("systemctl", "daemon-reload")
	}
	m.must("systemctl", "daemon-reexec")
}

// child stops a service whose main process has a child in the grant's cgroup, which is not systemd's. The child lives,
// keeps the grant and its cap, and ends by cgroup.kill, as docs/reference/known-limits.md says.
func child(m *machine) {
	j := m.newJob("child", tooMuch)
	// A shell gives a child in the background another input, unless it is named.
	both := []string{"/bin/sh", "-c", `exec 3<&0; "$0" "$@" <&3 & wait`}
	m.service(j, "", m.capped(j.unit, append(both, load(tooMuch)...)))
	m.started(j)
	if len(j.grant.PIDs) != 2 {
		m.Fatalf("shell and child: %+v", j.grant)
	}
	m.must("systemctl", "stop", j.unit+".service")
	m.eventually("the child alone", func() error {
		g, err := m.grant(j.unit)
		if err == nil && (len(g.PIDs) != 1 || int(g.PIDs[0]) == j.pid) {
			err = fmt.Errorf("processes %d, were %d", g.PIDs, j.grant.PIDs)
		}
		j.pid = int(slices.Max(append(g.PIDs, 0)))
		return err
	})
	if err := j.same(m); err != nil {
		m.Error(err)
	}
	if err := os.WriteFile(filepath.Join(j.grant.Cgroup, "cgroup.kill"), []byte("1"), 0); err != nil {
		m.Error(err)
	}
	m.jobs = m.jobs[:len(m.jobs)-1]
	m.must(kerf, "status", "--wait", fmt.Sprintf("grants=%d", len(m.jobs)), "--timeout", "60s")
	m.before = m.limits()
}

// ends stops what the jobs were started by; each takes its grant along.
func ends(m *machine) {
	for _, j := range m.jobs {
		m.end(j)
	}
	m.jobs, m.before = nil, "" // the driver shall have no limit either
	m.must(kerf, "status", "--wait", "grants=0", "--timeout", "60s")
}

// afterwards starts a job on the machine as it is now.
func afterwards(m *machine) { m.startService("afterwards", "", tooMuch) }

// TestInside runs in the guest. Jobs of every kind run through all steps; after each step they are looked at.
func TestInside(t *testing.T) {
	if !*inside {
		t.Skip("it runs in the guest: run make nightly-guest")
	}
	onlyVersionTwo(t)
	m := &machine{T: t, variant: variantOf(t)}
	m.startAgent()
	m.startService("service", "", little)
	m.startService("greedy", "", tooMuch)
	m.startService("delegated", "Delegate=yes", little)
	m.startScope("scope", tooMuch)
	m.startContainer("container", little)
	for _, s := range steps() {
		passed := t.Run(s.name, func(t *testing.T) {
			m.T = t
			s.do(m)
			m.check()
		})
		m.T = t
		if !passed {
			out, _ := command("journalctl", "--no-pager", "-o", "cat", "-n", "60", "-u", "kerf-agent.service")
			t.Fatalf("the agent's log:\n%s", out)
		}
	}
}

// onlyVersionTwo checks that the machine is what it is meant to be.
func onlyVersionTwo(t *testing.T) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs("/sys/fs/cgroup", &st); err != nil || st.Type != cgroup2Magic {
		t.Fatalf("/sys/fs/cgroup is no cgroup v2: %v, type %#x", err, st.Type)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), " cgroup ") {
		t.Fatalf("a cgroup v1 tree is mounted: %v\n%s", err, mounts)
	}
	if name, err := os.ReadFile("/proc/1/comm"); err != nil || string(name) != "systemd\n" {
		t.Fatalf("process 1 is %q: %v", name, err)
	}
}

// check looks at each job: the same process in the same cgroup, the same grant and cap, memory below the cap and none
// above.
func (m *machine) check() {
	m.Helper()
	m.must(kerf, "status", "--wait", "ready", "--timeout", "60s")
	for _, j := range m.jobs {
		if err := j.same(m); err != nil {
			m.Errorf("job %s: %v", j.unit, err)
		}
	}
	if now := m.limits(); now != m.before {
		m.Errorf("limits in the driver:\n%s\nbefore:\n%s", now, m.before)
	}
}

// same returns what has changed about a job since it started.
func (j *job) same(m *machine) error {
	if now, err := cgroupOf(j.pid); err != nil || now != j.cgroup {
		return fmt.Errorf("cgroup of its process is %q (%w), was %q", now, err, j.cgroup)
	}
	g, err := m.grant(j.unit)
	if err != nil {
		return err
	}
	if g.Level != m.level || g.Backend != j.grant.Backend || g.ID != j.grant.ID ||
		g.MemoryBytes != j.grant.MemoryBytes || g.Cgroup != j.grant.Cgroup || g.GPUs[0] != j.grant.GPUs[0] {
		return fmt.Errorf("its grant is %+v, was %+v", g, j.grant)
	}
	l, err := j.takeMore()
	switch {
	case err != nil:
		return err
	case j.greedy && (l.Error != "CUDA_ERROR_OUT_OF_MEMORY" || l.Allocated != j.has):
		return fmt.Errorf("its cap does not stop it: %+v, has %d", l, j.has)
	case !j.greedy && (l.Error != "" || l.Allocated <= j.has):
		return fmt.Errorf("it gets no memory below its cap: %+v, has %d", l, j.has)
	}
	j.has = l.Allocated
	if j.container {
		return devices()
	}
	return nil
}

// devices opens the devices of a container: the one of its OCI spec is there, another one is not.
func devices() error {
	if out, err := command("runc", "exec", containerID, "/bin/dd", "count=0", "if="+granted); err != nil {
		return fmt.Errorf("open the device of its spec: %w: %s", err, out)
	}
	out, err := command("runc", "exec", containerID, "/bin/dd", "count=0", "if="+denied)
	if err == nil || !strings.Contains(out, "Operation not permitted") {
		return errors.Join(err, fmt.Errorf("open a device that is not in its spec: %s", out))
	}
	return nil
}

// cgroupOf is the cgroup of a process, with the inode of its directory.
func cgroupOf(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	name := strings.TrimPrefix(strings.TrimSpace(string(text)), "0::")
	info, err := os.Stat(filepath.Join("/sys/fs/cgroup", name))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s inode %d", name, info.Sys().(*syscall.Stat_t).Ino), nil
}
