// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// watched is a config whose one pool has the reactive backend, with further fields of the pool.
func watched(more string) string {
	return head + "spec:\n  pools:\n  - {name: default, backends: [driver, reactive]" + more + "}\n"
}

// newWatched is a machine whose driver cannot limit memory and whose pool watches.
func newWatched(t *testing.T, more string) *machine {
	t.Helper()
	return newPooled(t, "t4x4", "r580", "driver, reactive", more)
}

// wantKilled waits until a run's program was killed.
func wantKilled(t *testing.T, r *run) {
	t.Helper()
	if got := r.wait(); got.signal != syscall.SIGKILL {
		t.Errorf("past its cap it ended with %v, want killed", got)
	}
}

// wantWarning waits for a warning in kerf status that has all of these.
func (m *machine) wantWarning(parts ...string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("warning of %q", parts), func() error {
		warnings := m.state().Warnings
		if !slices.ContainsFunc(warnings, func(w string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(w, part) })
		}) {
			return fmt.Errorf("warnings %q", warnings)
		}
		return nil
	})
}

// looks waits until the agent has looked so often more.
func (m *machine) looks(more int) {
	m.t.Helper()
	count := func() (n int) {
		for line := range strings.Lines(m.metrics()) {
			if _, err := fmt.Sscanf(line, "kerf_reactive_check_duration_seconds_count %d", &n); err == nil {
				return n
			}
		}
		return 0
	}
	before := count()
	eventually(m.t, "looks of the agent", func() error {
		if now := count(); now < before+more {
			return fmt.Errorf("%d, %d before", now, before)
		}
		return nil
	})
}

// On a driver that cannot limit memory a share is watched where the pool says so: what exceeds it is killed, its
// neighbour is not, and everything calls it what it is.
func TestReactiveKills(t *testing.T) {
	t.Parallel()
	m := newWatched(t, ", onOverCap: kill")
	pin := " --gpu-uuid " + m.uuid(0)
	if got := m.gpu(0).Levels; !slices.Contains(got, "reactive") || slices.Contains(got, "driver") {
		t.Errorf("levels on offer: %q", got)
	}
	if said := m.refused(flags("--memory 4GiB --min-enforcement driver")); !strings.Contains(said,
		"level reactive at most, driver required") || !strings.Contains(said, "install NVIDIA driver r615") {
		t.Errorf("a demand for more is refused without levels or remedy: %s", said)
	}
	neighbour := m.run(flags("--memory 4GiB --name neighbour"+pin), load("--alloc 3GiB --hold 1h"))
	wantLoad(t, neighbour.loads(1)[0], "", 3*gib, 3*gib)
	greedy := m.run(flags("--memory 4GiB --name greedy --min-enforcement reactive"+pin), load("--alloc 6GiB --hold 1h"))
	if s := greedy.granted(); s.Level != "reactive" || !strings.Contains(s.LevelReason, "memory limit") {
		t.Errorf("status file: level %q, reason %q", s.Level, s.LevelReason)
	}
	wantKilled(t, greedy)
	if !strings.Contains(greedy.stderr(), "watched (level reactive)") {
		t.Errorf("kerf run does not say how it is held: %q", greedy.stderr())
	}
	m.looks(3)
	if g := m.grant("neighbour"); !neighbour.running() || g.Level != "reactive" || g.Used == nil || *g.Used != 3*gib+
		contextT4 {
		t.Errorf("the neighbour runs: %v, %+v", neighbour.running(), g)
	}
	metrics := m.metrics()
	for _, want := range []string{
		`kerf_reactive_kills_total{reason="over_cap"} 1`, "kerf_reactive_detection_seconds_count 1",
		"kerf_reactive_overshoot_bytes_count 1",
		fmt.Sprintf("kerf_reactive_overshoot_bytes_sum %v", float64(2*gib+contextT4)),
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics do not tell %q", want)
		}
	}
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "kerf_reactive_detection_seconds_sum") ||
			strings.HasPrefix(line, "kerf_reactive_check_duration_seconds_sum") ||
			strings.HasPrefix(line, "kerf_reactive_check_duration_seconds_count") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if r := m.kerf("doctor"); !strings.Contains(r.out, "level reactive     offered by the agent") {
		t.Errorf("doctor: %s", r.out)
	}
	checkInvariants(t, m)
}

// To warn is only that; the policy may change while a program runs; and an agent that was killed goes on watching
// what it finds again.
func TestReactiveWarnsThenKillsAfterARestart(t *testing.T) {
	t.Parallel()
	m := newWatched(t, ", onOverCap: warn")
	r := m.run(flags("--memory 4GiB --name open"), load("--alloc 6GiB --hold 1h"))
	wantLoad(t, r.loads(1)[0], "", 6*gib, 6*gib)
	m.wantWarning("holds more than its 4GiB", "policy: warn")
	m.looks(5)
	m.restartAgent()
	m.wantWarning("holds more than its 4GiB", "policy: warn")
	if g := m.grant("open"); !r.running() || g.Level != "reactive" {
		t.Errorf("after a restart: running %v, level %q", r.running(), g.Level)
	}
	checkInvariants(t, m)
	m.killAgent()
	m.write(watched(", onOverCap: kill"))
	m.startAgent()
	wantKilled(t, r)
	m.ready()
	m.noGrants()
}

// While the driver does not report a grant's usage, its level is unknown and no process is killed.
func TestReactiveNeverKillsOnUnknownUse(t *testing.T) {
	t.Parallel()
	m := newWatched(t, ", onOverCap: warn")
	r := m.run(flags("--memory 4GiB --name open --gpu-uuid "+m.uuid(1)), load("--alloc 6GiB --hold 1h"))
	wantLoad(t, r.loads(1)[0], "", 6*gib, 6*gib)
	m.wantWarning("holds more than its 4GiB")
	m.set("gpu=1", "latency=1h")
	eventually(t, "level unknown", func() error {
		if g := m.grant("open"); g.Level != "unknown" {
			return fmt.Errorf("level %q: %s", g.Level, g.LevelReason)
		}
		return nil
	})
	m.rewrite(watched(", onOverCap: kill"))
	m.looks(5)
	if !r.running() {
		t.Fatal("it was killed while its use was not known")
	}
	m.set("gpu=1", "latency=0s")
	wantKilled(t, r)
}

// Kerf reports a program that uses a GPU without a grant, and kills it if the pool says so, while programs with a grant
// run.
func TestStrangersByPolicy(t *testing.T) {
	t.Parallel()
	m := newWatched(t, ", onOverCap: warn")
	stranger := func(gpu string) *proc {
		cmd := exec.Command(program("gpuload"), "--json", "--alloc", "1GiB", "--hold", "1h", "--gpu", gpu)
		cmd.Env = slices.Clone(m.env)
		return begin(t, m.work, "unmanaged", cmd)
	}
	own := m.run(flags("--memory 4GiB --gpu-uuid "+m.uuid(2)), load("--alloc 2GiB --hold 1h"))
	own.loads(1)
	beside, alone := stranger("2"), stranger("3")
	beside.lines(1)
	alone.lines(1)
	m.wantWarning("GPU 2 is used by processes without a grant", fmt.Sprint(beside.pid()))
	m.wantWarning("GPU 3 is used by processes without a grant", fmt.Sprint(alone.pid()))
	if !beside.running() || !alone.running() {
		t.Fatal("an unmanaged process was killed that is only to be reported")
	}
	m.write(watched(", onUnmanagedProcess: kill"))
	for _, p := range []*proc{beside, alone} {
		if got := p.wait(); got.signal != syscall.SIGKILL {
			t.Errorf("an unmanaged process ended with %v, want killed", got)
		}
	}
	m.looks(3)
	if !own.running() {
		t.Error("a program with a grant was killed as unmanaged")
	}
	if metrics := m.metrics(); !strings.Contains(metrics, `kerf_reactive_kills_total{reason="unmanaged"} 2`) {
		t.Error("metrics do not count two unmanaged processes")
	}
}

// What the pool may not say is refused with its place.
func TestReactiveConfigMistakes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	path := filepath.Join(m.work, "config.yaml")
	m.write(head + "spec:\n  pools:\n  - {name: a, backends: [reactive], onOverCap: drain, onUnmanagedProcess: " +
		"shoot}\n")
	m.agentFlags = []string{"--config", path}
	m.startAgent()
	eventually(t, "answer of the agent", func() error {
		if r := m.kerf("status"); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	m.wantMistakes("spec.pools[0].backends", "spec.pools[0].onOverCap", "warn, kill or evict",
		"spec.pools[0].onUnmanagedProcess")
}
