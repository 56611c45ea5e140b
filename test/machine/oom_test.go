// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// memoryGroup is a cgroup of the kernel's memory controller, of version 1 or 2.
type memoryGroup struct{ dir, limit, events string }

// newMemoryGroup makes one that is removed after the test, when it is empty.
func newMemoryGroup(t *testing.T) memoryGroup {
	t.Helper()
	name := fmt.Sprintf("kerf-test-oom-%d", os.Getpid())
	g := memoryGroup{filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes", "memory.oom_control"}
	if _, err := os.Stat(filepath.Join(filepath.Dir(g.dir), g.limit)); err != nil {
		g = memoryGroup{filepath.Join("/sys/fs/cgroup", name), "memory.max", "memory.events"}
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0); err != nil {
			t.Skip("no memory controller:", err)
		}
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "removal of the memory group", func() error { return os.Remove(g.dir) })
	})
	return g
}

// hold moves a process into the group and limits it to bytes beyond what it has now.
func (g memoryGroup) hold(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	for file, text := range map[string]string{g.limit: strconv.FormatUint(bytes, 10),
		"cgroup.procs": strconv.Itoa(pid)} {
		if err := os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// kills is how many processes of the group the kernel has killed for memory.
func (g memoryGroup) kills(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.events))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			count, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
	}
	t.Fatalf("no oom_kill in %q", text)
	return 0
}

// The kernel kills the agent at its memory limit, at one point of a request or another. No grant is lost or given
// twice.
func TestAgentKilledAtItsMemoryLimit(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	runs := m.four()
	before := held(m.state())
	g := newMemoryGroup(t)
	for i, limit := range []uint64{0, 32 << 10, 128 << 10, 512 << 10, 1 << 20} {
		g.hold(t, m.agent.pid(), limit)
		var victim *run
		for tries := 0; m.agent.running() && tries < 200; tries++ {
			victim = m.run(flags("--memory 1GiB"), []string{"true"})
			select {
			case <-victim.exited:
			case <-m.agent.exited:
			}
		}
		if got := m.agent.wait(); got.signal != syscall.SIGKILL || g.kills(t) != i+1 {
			t.Fatalf("agent limited to %d bytes more: exit %d, signal %v; the kernel killed %d", limit, got.code,
				got.signal, g.kills(t))
		}
		m.startAgent()
		m.ready()
		if victim != nil {
			if got := victim.wait(); got.code != 0 && got.code != 125 {
				t.Errorf("the run in that moment: %v", got)
			}
		}
		eventually(t, "only the grants from before", func() error {
			if s := m.state(); len(s.Grants) != len(before) {
				return fmt.Errorf("grants %+v", s.Grants)
			}
			return nil
		})
		m.wantSame(before, runs)
	}
	m.refused(flags("--gpus 2"))
}
