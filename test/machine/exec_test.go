// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// kerf run becomes the program: exit status, streams and process are the program's own.
func TestRunBecomesTheProgram(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	plain := filepath.Join(m.work, "plain.txt")
	script := filepath.Join(m.work, "script")
	if err := errors.Join(os.WriteFile(plain, []byte("no program\n"), 0o644),
		writeProgram(script, strings.NewReader("echo from a script; exit 4\n"))); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("0123456789abcdef", 20000) // more than a pipe holds
	tests := map[string]struct {
		argv      []string
		in        string
		code      int
		signal    syscall.Signal
		out, errs string // errs: a part
	}{
		"success":         {argv: []string{"true"}},
		"its exit status": {argv: []string{"sh", "-c", "exit 3"}, code: 3},
		"its 125":         {argv: []string{"sh", "-c", "exit 125"}, code: 125},
		"its streams":     {argv: []string{"sh", "-c", "cat; echo oops >&2"}, in: big, out: big, errs: "oops\n"},
		"its arguments": {argv: []string{"printf", "%s|", "--memory", "", "a b", "--", "-x"},
			out: "--memory||a b|--|-x|"},
		"its end by a signal": {argv: []string{"sh", "-c", "kill -KILL $$"}, code: -1, signal: syscall.SIGKILL},
		"script without #!":   {argv: []string{script}, code: 4, out: "from a script\n"},
		"not executable":      {argv: []string{plain}, code: 126, errs: "permission denied"},
		"a directory":         {argv: []string{m.work}, code: 126, errs: m.work},
		"no such file":        {argv: []string{m.work + "/absent"}, code: 127, errs: "absent"},
		"no such command":     {argv: []string{"no-such-command-anywhere"}, code: 127, errs: "not found"},
		"an empty command":    {argv: []string{""}, code: 127, errs: "not found"},
		"knows what it was given": {
			argv: []string{"sh", "-c",
				"echo $KERF_MEMORY_BYTES $KERF_PERCENT $KERF_LEVEL; test -n \"$KERF_GRANT\" -a -n " +
					"\"$CUDA_VISIBLE_DEVICES\""},
			out: fmt.Sprintln(gib, 25, "driver"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := m.in(t)
			r := m.run(flags("--memory 1GiB --percent 25"), tt.argv, withInput(strings.NewReader(tt.in))).wait()
			if r.code != tt.code || r.signal != tt.signal || r.out != tt.out || !strings.Contains(r.err, tt.errs) {
				t.Errorf("exit %d, signal %d, stderr %q, %d bytes on stdout; want exit %d, signal %d, %q, %d bytes",
					r.code, r.signal, r.err, len(r.out), tt.code, tt.signal, tt.errs, len(tt.out))
			}
			m.noGrants()
		})
	}
	checkInvariants(t, m)
}

// The program has the process id of kerf run, and signals sent there reach it.
func TestSignalsReachTheProgram(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	trap := []string{"sh", "-c",
		`trap 'echo TERM; exit 7' TERM; trap 'echo INT; exit 8' INT; echo $$; while :; do sleep 0.05; done`}
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 7, syscall.SIGINT: 8} {
		r := m.run(flags("--memory 1GiB"), trap)
		if pid := r.lines(1)[0]; pid != strconv.Itoa(r.pid()) {
			t.Errorf("the program is process %s, kerf run was %d", pid, r.pid())
		}
		if s := r.granted(); s.PID != r.pid() {
			t.Errorf("status file: pid %d, the program is %d", s.PID, r.pid())
		}
		r.signal(sig)
		if got := r.wait(); got.code != want {
			t.Errorf("%v: %v, want exit %d", sig, got, want)
		}
	}
	r := m.run(flags("--memory 1GiB"), hold())
	r.granted()
	r.signal(syscall.SIGTERM)
	if got := r.wait(); got.signal != syscall.SIGTERM {
		t.Errorf("untrapped SIGTERM: %v", got)
	}
	m.noGrants()
}

// The grant ends with the last process, not with the first.
func TestGrantLivesAsLongAsItsProcesses(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 1GiB --name family"), []string{"sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo $!"})
	child, err := strconv.Atoi(r.lines(1)[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := r.wait(); got.code != 0 {
		t.Fatalf("parent: %v", got)
	}
	eventually(t, "the child alone in the grant", func() error {
		if g := m.grant("family"); len(g.PIDs) != 1 || g.PIDs[0] != child {
			return fmt.Errorf("pids %v, want %d", g.PIDs, child)
		}
		return nil
	})
	checkInvariants(t, m)
	m.restartAgent()
	if g := m.grant("family"); len(g.PIDs) != 1 || g.PIDs[0] != child {
		t.Errorf("after a restart: pids %v, want %d", g.PIDs, child)
	}
	r.end() // the group: the child, by now an orphan
	m.noGrants()
}

// A name belongs to one living grant at a time.
func TestNamesAreUniqueAmongTheLiving(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	first := m.run(flags("--memory 1GiB --name train"), hold())
	first.granted()
	if said := m.refused(flags("--memory 1GiB --name train")); !strings.Contains(said, `"train"`) {
		t.Errorf("refused with %q, want the name", said)
	}
	if n := len(m.state().Grants); n != 1 {
		t.Errorf("%d grants, want 1", n)
	}
	first.end()
	m.noGrants()
	m.run(flags("--memory 1GiB --name train"), hold()).granted()
	checkInvariants(t, m)
}

// The status file says what became of a run.
func TestStatusFile(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 2GiB --percent 20 --name informed"), hold())
	s, g := r.granted(), m.grant("informed")
	if s.ID != g.ID || s.Name != "informed" || s.MemoryBytes != 2*gib || s.Percent != 20 || s.Level != "driver" ||
		s.Cgroup != g.Cgroup ||
		s.PID != r.pid() || s.Error != nil || len(s.GPUs) != 1 || s.GPUs[0] != g.GPUs[0] {
		t.Errorf("status file %+v, grant %+v", s, g)
	}
	if g.State != "Active" || len(g.PIDs) != 1 || g.PIDs[0] != r.pid() || g.Health != "healthy" {
		t.Errorf("grant %+v, want an attachment with process %d", g, r.pid())
	}
	missing := m.run(flags("--memory 1GiB"), []string{"no-such-command-anywhere"})
	if got := missing.wait(); got.code != 127 {
		t.Errorf("no such command: %v", got)
	}
	if s := missing.readStatus(); s.State != "refused" || s.Error == nil {
		t.Errorf("status file of a command that is not found: %+v", s)
	}
	for path, why := range map[string]string{
		m.base + "/absent/file": "no such file", m.work: "no regular file", m.work + "/": "regular file", "": "empty",
	} {
		r := m.kerf("run", "--memory", "1GiB", "--status-file", path, "--", "true")
		if r.code != 125 || !strings.Contains(r.err, "--status-file") || !strings.Contains(r.err, why) {
			t.Errorf("--status-file %q: %v", path, r)
		}
	}
	// A directory that only looks as if it could be written to is tried before anything is reserved.
	if r := m.kerf("run", "--memory", "1GiB", "--status-file", "/proc/kerf-status", "--", "echo",
		"ran"); r.code != 125 || r.out != "" || !strings.Contains(r.err, "--status-file") {
		t.Errorf("a status file that cannot be made: %v", r)
	}
	eventually(t, "one grant", func() error {
		if n := len(m.state().Grants); n != 1 {
			return fmt.Errorf("%d grants: a refused run left something", n)
		}
		return nil
	})
	checkInvariants(t, m)
}
