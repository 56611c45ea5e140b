// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// newPreloading is a machine whose driver cannot limit memory and whose pool preloads the library, and watches.
func newPreloading(t *testing.T, more string) *machine {
	t.Helper()
	return newPooled(t, "t4x4", "r580", "driver, libkerf, reactive", more)
}

// newPooled is a machine whose one pool lists these backends, and has more fields.
func newPooled(t *testing.T, hardware, driver, backends, more string) *machine {
	t.Helper()
	m := newMachine(t, setup{hardware: hardware, driver: driver, noAgent: true})
	m.cannotLimit(driver)
	m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools:\n  - {name: default, backends: [" + backends +
		"]" + more + "}\n")}
	m.startAgent()
	m.ready()
	return m
}

// cannotLimit takes the limits of memory from a driver that has them, for the next backends of a list.
func (m *machine) cannotLimit(driver string) {
	m.t.Helper()
	if driver == "r615" {
		m.set("gpu=all", "error.set-limit=not-supported")
	}
}

// A program that requests more than its cap gets an error, and sees the cap as the GPU's size. Its neighbor has all of
// its memory; and agents come and go.
func TestClientHolds(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	pin := " --gpu-uuid " + m.uuid(0)
	neighbour := m.run(flags("--memory 6GiB --name neighbour"+pin), load("--alloc 5GiB --hold 1h"))
	wantLoad(t, neighbour.loads(1)[0], "", 5*gib, 5*gib)
	greedy := m.run(flags("--memory 4GiB --name greedy --min-enforcement userspace"+pin),
		load("--alloc 6GiB --step 256MiB --hold 1h"))
	got := greedy.loads(1)[0]
	wantLoad(t, got, oom, 4*gib-contextT4-256*mib, 4*gib)
	if got.Total == nil || *got.Total != 4*gib {
		t.Errorf("the program sees a GPU of %v, want its cap as the size", got)
	}
	if s := greedy.granted(); s.Level != "userspace" || s.Backend != "libkerf" ||
		!strings.Contains(s.LevelReason, "memory limit") {
		t.Errorf("status file: level %q by %q, reason %q", s.Level, s.Backend, s.LevelReason)
	}
	for range 2 {
		if g := m.grant("neighbour"); !neighbour.running() || g.Level != "userspace" || g.Used == nil ||
			*g.Used != 5*gib+
				contextT4 {
			t.Errorf("the neighbour runs: %v, %+v", neighbour.running(), g)
		}
		m.restartAgent()
	}
	// What the driver holds for its context is no more to be had, once it was seen.
	gate := filepath.Join(m.work, "gate")
	script := program("gpuload") + " --json --alloc 1GiB --hold 1h & until [ -e " + gate +
		" ]; do sleep 0.05; done; exec " + program("gpuload") + " --json --alloc 1GiB --step 8MiB --hold 1h"
	late := m.run(flags("--memory 2GiB --name late"+pin), []string{"sh", "-c", script})
	wantLoad(t, late.loads(1)[0], "", gib, gib)
	m.looks(3)
	touch(t, gate)
	line := late.lines(2)[1]
	wantLoad(t, decode[loaded](t, line), oom, gib-2*contextT4-8*mib, gib-contextT4)
	if r := m.kerf("doctor"); !strings.Contains(r.out, "level userspace    offered by the agent") {
		t.Errorf("doctor: %s", r.out)
	}
}

// Twelve programs that start at once under a cap for eight contexts and a bit: eight get one, and at no moment is more
// held than the cap; also where the size of a context was not measured yet.
func TestClientContextsAtOnce(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, ", onOverCap: warn")
	pin := " --gpu-uuid " + m.uuid(0)
	for _, when := range []string{"not measured", "not measured, again", "measured", "measured by an agent before"} {
		switch when {
		case "measured":
			m.measured()
		case "measured by an agent before":
			m.restartAgent()
			m.ready()
		}
		m.set("gpu=all", "peak=now")
		script := "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do " + program("gpuload") + " --json --hold 1h & done; wait"
		r := m.run(flags("--memory 1GiB"+pin), []string{"sh", "-c", script})
		grant := r.granted()
		refused := strings.Count(strings.Join(r.lines(12), "\n"), oom) // who has a context keeps it until all have said
		// By the driver's account of each moment; no other process is on the GPUs.
		if most := m.memory().peak; most != 8*contextT4 || refused != 4 {
			t.Errorf("%s: at most %d bytes were held and %d refused, want %d and 4", when, most, refused, 8*contextT4)
		}
		r.end()
		m.endsWith(grant.Cgroup)
	}
	checkInvariants(t, m)
}

// A hundred programs that start at once, of which a few at a time have room for the bound, all get their context.
func TestClientManyContextsBeforeOneIsMeasured(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	script := `for i in $(seq 100); do "$0" --json --hold 1h & done; wait`
	r := m.run(flags("--memory 13GiB --gpu-uuid "+m.uuid(0)), []string{"sh", "-c", script, program("gpuload")})
	for _, line := range r.lines(100) {
		if got := decode[loaded](t, line); got.err() != "" {
			t.Fatalf("a program got no context: %s", got.err())
		}
	}
	if sizes, err := m.contextSizes(); err == nil {
		t.Errorf("measured with a grant: %v", sizes)
	}
}

// What a killed process held is another's within a second, in one attachment.
func TestClientGivesBackWhatTheDeadHeld(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	// Each of them dies with three quarters of the cap allocated, and the next one comes a second later.
	script := "for i in 1 2 3 4; do " + program("gpuload") +
		" --json --alloc 3GiB --hold 1h & read wait; kill -9 $!; wait $!; sleep 1; done"
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	r := m.run(flags("--memory 4GiB --name again"), []string{"bash", "-c", script}, withInput(in))
	for i := range 4 {
		wantLoad(t, decode[loaded](t, r.lines(i + 1)[i]), "", 3*gib, 3*gib)
		if _, err := out.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// A static program does not load the library. The agent finds it, the reactive backend checks its grant with all its
// memory, and the agent warns of it if the pool does not say to kill.
func TestClientFindsWhoDoesNotCount(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, ", onOverCap: kill")
	pin := " --gpu-uuid " + m.uuid(1)
	honest := m.run(flags("--memory 4GiB --name honest"+pin), load("--alloc 3GiB --hold 1h"))
	wantLoad(t, honest.loads(1)[0], "", 3*gib, 3*gib)
	// The loader's file is set aside, as a program of another C library would.
	escape := []string{"sh", "-c", "umount /etc/ld.so.preload && exec " + program("gpuload") +
		" --alloc 3GiB --hold 1h"}
	within := m.run(flags("--memory 4GiB --name within"+pin), escape)
	within.granted()
	eventually(t, "level reactive", func() error {
		if g := m.grant("within"); g.Level != "reactive" ||
			!strings.Contains(g.LevelReason, "without the preloaded library") {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	m.wantWarning("without the preloaded library")
	if !strings.Contains(m.metrics(), "kerf_libkerf_bypasses_total 1") {
		t.Error("no metric tells it")
	}
	// No loader reads anything for a static program with its own calls to the driver.
	static, second := []string{staticProgram(t, m.work), m.sim + "/dev/nvidia2", fmt.Sprint(3 * gib)},
		" --gpu-uuid "+m.uuid(2)
	alone := m.run(flags("--memory 4GiB --name static"+second), static)
	alone.lines(1)
	eventually(t, "level reactive of the static program", func() error {
		if g := m.grant("static"); g.Level != "reactive" ||
			!strings.Contains(g.LevelReason, "without the preloaded library") {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	static[2] = fmt.Sprint(5 * gib)
	wantKilled(t, m.run(flags("--memory 4GiB --name larger"+second), static))
	if !alone.running() {
		t.Error("the static program was within its cap, and is gone")
	}
	escape[2] = strings.Replace(escape[2], "3GiB", "5GiB", 1)
	beyond := m.run(flags("--memory 4GiB --name beyond"+pin), escape)
	if got := beyond.wait(); got.signal != syscall.SIGKILL {
		t.Errorf("past its cap it ended with %v, want killed", got)
	}
	if g := m.grant("honest"); !honest.running() || g.Level != "userspace" {
		t.Errorf("the neighbour runs: %v, %+v", honest.running(), g)
	}
	if !within.running() {
		t.Error("within its cap, and it is gone")
	}
}

// checkProgram builds one of the simulator's small programs for tests in a folder.
func checkProgram(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, "check", name)
	cmd := exec.Command("make", "-s", "-C", "../../sim/lib", "OUT="+dir, path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", path, err, out)
	}
	return path
}

// staticProgram builds a program that takes memory of a GPU and is linked with no shared library.
func staticProgram(t *testing.T, dir string) string {
	t.Helper()
	path := checkProgram(t, dir, "staticload")
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Fatalf("%s has a loader", path)
		}
	}
	return path
}

// A user who may not mount gets the next backend of the list, and a message says so.
func TestClientForUsers(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	if err := os.Chmod(filepath.Join(m.dir, "kerf.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
	user := m.run(flags("--memory 1GiB --name user"), []string{"true"}, asUser(1000, nogroup))
	if r := user.wait(); r.code != 0 {
		t.Errorf("%v", r)
	}
	if said := user.stderr(); !strings.Contains(said, "watched (level reactive)") ||
		!strings.Contains(said, "libkerf: the process has no CAP_SYS_ADMIN") {
		t.Errorf("it gets %q", said)
	}
}
