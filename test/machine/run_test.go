// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// run is a "kerf run" in the background.
type run struct {
	*proc
	m      *machine
	status string
}

// runStatus is the content of --status-file.
type runStatus struct {
	State       string   `json:"state"`
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	GPUs        []string `json:"gpus"`
	MemoryBytes uint64   `json:"memoryBytes"`
	Percent     uint32   `json:"percent"`
	Level       string   `json:"level"`
	LevelReason string   `json:"levelReason"`
	Backend     string   `json:"backend"`
	Cgroup      string   `json:"cgroup"`
	PID         int      `json:"pid"`
	Error       *string  `json:"error"`
}

// how changes the command of a run before it starts.
type how func(*exec.Cmd)

// asUser runs it as another user.
func asUser(uid, gid uint32) how {
	return func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
}

// withInput gives it a standard input.
func withInput(r io.Reader) how { return func(c *exec.Cmd) { c.Stdin = r } }

// flags are the flags of kerf run, as one writes them.
func flags(s string) []string { return strings.Fields(s) }

// run starts "kerf run FLAGS -- ARGV" with a status file.
func (m *machine) run(flags []string, argv []string, changes ...how) *run {
	m.t.Helper()
	f, err := os.CreateTemp(m.work, "status-*")
	if err != nil {
		m.t.Fatal(err)
	}
	_ = f.Close()
	r := &run{m: m, status: f.Name()}
	args := append([]string{"--run-dir", m.dir, "run", "--status-file", r.status}, flags...)
	cmd := exec.Command(program("kerf"), append(append(args, "--"), argv...)...)
	cmd.Env = slices.Clone(m.env)
	for _, change := range changes {
		change(cmd)
	}
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Credential != nil {
		// The user has no private directory to put a file into.
		i := slices.Index(cmd.Args, "--status-file")
		cmd.Args = slices.Delete(cmd.Args, i, i+2)
	}
	r.proc = begin(m.t, m.work, "run", cmd)
	return r
}

// refused runs what must be refused by Kerf, and returns what it said.
func (m *machine) refused(flags []string, argv ...string) string {
	m.t.Helper()
	if len(argv) == 0 {
		argv = []string{"true"}
	}
	r := m.run(flags, argv)
	got := r.wait()
	if got.code != 125 {
		m.t.Fatalf("kerf run %q: %v, want exit 125", flags, got)
	}
	s := r.readStatus()
	if s.State != "refused" || s.Error == nil || !strings.Contains(flat(got.err), flat(firstLine(*s.Error))) {
		m.t.Errorf("status file of a refused run: %+v; stderr: %s", s, got.err)
	}
	return got.err
}

// flat takes line breaks and the command's name out of a message.
func flat(s string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "kerf run:", "")), " ")
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}

func (r *run) readStatus() runStatus {
	r.m.t.Helper()
	return decode[runStatus](r.m.t, r.read(r.status))
}

// granted waits until the program is about to run, and returns its grant.
func (r *run) granted() runStatus {
	r.m.t.Helper()
	var s runStatus
	eventually(r.m.t, "grant of "+strings.Join(r.cmd.Args, " "), func() error {
		ended := !r.running()
		text := r.read(r.status)
		if text == "" && !ended {
			return errors.New("no status file yet")
		}
		if text == "" {
			r.m.t.Fatalf("run ended without a status file: %v", r.wait())
		}
		s = decode[runStatus](r.m.t, text)
		if s.State != "running" {
			r.m.t.Fatalf("run was %s: %v", s.State, r.wait())
		}
		return nil
	})
	r.m.parent = parentOf(s.Cgroup)
	return s
}

func parentOf(cgroup string) string { return cgroup[:strings.LastIndexByte(cgroup, '/')] }

// end kills the program with all that it started.
func (r *run) end() { r.kill() }

// load is gpuload with these flags and JSON output.
func load(flags string) []string {
	return append([]string{program("gpuload"), "--json"}, strings.Fields(flags)...)
}

// hold is a program without any use of a GPU that runs until it is killed.
func hold() []string { return []string{"sleep", "3600"} }

// loaded is one line of gpuload.
type loaded struct {
	PID       int     `json:"pid"`
	Allocated uint64  `json:"allocated_bytes"`
	Error     *string `json:"error"`
	Total     *uint64 `json:"total_bytes"`
	Free      *uint64 `json:"free_bytes"`
	// Processors are the multiprocessors that it sees.
	Processors int `json:"multiprocessors"`
}

func (l loaded) err() string {
	if l.Error == nil {
		return ""
	}
	return *l.Error
}

func (l loaded) String() string {
	total := "unknown"
	if l.Total != nil {
		total = fmt.Sprint(*l.Total)
	}
	return fmt.Sprintf("pid %d allocated %d, error %q, total %s", l.PID, l.Allocated, l.err(), total)
}

// loads waits for n lines of gpuload.
func (r *run) loads(n int) []loaded {
	r.m.t.Helper()
	var all []loaded
	for _, line := range r.lines(n) {
		all = append(all, decode[loaded](r.m.t, line))
	}
	return all
}

// wantLoad checks one process's outcome: an error's name or "", and what it could allocate.
func wantLoad(t *testing.T, l loaded, wantErr string, least, most uint64) {
	t.Helper()
	if l.err() != wantErr || l.Allocated < least || l.Allocated > most {
		t.Errorf("gpuload: %v; want error %q and %d to %d bytes", l, wantErr, least, most)
	}
}

// withProgram runs another copy of kerf.
func withProgram(path string) how { return func(c *exec.Cmd) { c.Path, c.Args[0] = path, path } }

// asking is a program that takes more for each line that it reads (gpuload --more).
type asking struct {
	*run
	in   *os.File
	said int
}

// asks starts one.
func (m *machine) asks(flags, argv []string, changes ...how) *asking {
	m.t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	defer in.Close()
	m.t.Cleanup(func() { _ = out.Close() })
	return &asking{run: m.run(flags, argv, append(changes, withInput(in))...), in: out}
}

// next waits for the next line.
func (a *asking) next() loaded {
	a.m.t.Helper()
	a.said++
	return a.loads(a.said)[a.said-1]
}

// more has it take more, and waits for what comes of it.
func (a *asking) more() loaded {
	a.m.t.Helper()
	if _, err := a.in.WriteString("\n"); err != nil {
		a.m.t.Fatal(err)
	}
	return a.next()
}
