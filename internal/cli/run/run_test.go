// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// Each error has a separate line with the flag and the remedy. Nothing is reserved.
func TestRunRefusesBadFlags(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string // each must be in a line
	}{
		"nothing":    {[]string{"--", "true"}, []string{"requests nothing; give --memory, --percent or --gpus"}},
		"no command": {[]string{"--memory", "1GiB"}, []string{"the command is missing; write it after --"}},
		"empty flags": {[]string{"--memory=", "--name=", "--", "true"},
			[]string{"--memory is empty", "--name is empty"}},
		"all at once": {[]string{"--memory", "-1", "--percent", "0", "--gpus", "x", "--min-enforcement", "iron",
			"--placement-policy", "up", "--name", "A_b", "--gpu-uuid", "7", "--", "true"},
			[]string{`--memory "-1"`, `--percent "0"`, `--gpus "x"`, `--min-enforcement "iron"`,
				`--placement-policy "up"`,
				`--name "A_b"`, `--gpu-uuid "7"`}},
		"overflow":         {[]string{"--memory", "99999999999999999999GiB", "--", "true"}, []string{`is too large`}},
		"too much compute": {[]string{"--memory", "1GiB", "--percent", "101", "--", "true"}, []string{"--percent"}},
		"whole and memory": {[]string{"--gpus", "2", "--memory", "3B", "--", "true"}, []string{"--memory"}},
		"unknown flag": {[]string{"--cores", "2", "--", "true"},
			[]string{"unknown flag: --cores", "see kerf run --help"}},
		"status directory": {[]string{"--memory", "1GiB", "--status-file", "/", "--", "true"},
			[]string{"--status-file"}},
		"status nowhere": {[]string{"--memory", "1GiB", "--status-file", "/no/such/dir/f", "--", "true"},
			[]string{"--status-file", "cannot be written"}},
		"control character": {[]string{"--memory", "1\x1b[31mGiB", "--", "true"}, []string{`\x1b`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			agent := clitest.Granting(t, dir, nil)
			p := clitest.New(map[string]string{"PATH": "/bin:/usr/bin"})
			code, _ := p.App.Execute(append([]string{"--run-dir", dir, "run"}, tt.args...), Commands)
			if code != 125 || len(agent.Calls()) != 0 {
				t.Errorf("code %d, calls %v", code, agent.Calls())
			}
			lines := strings.Split(strings.TrimSpace(p.ErrOut.String()), "\n")
			for _, want := range tt.want {
				if !slices.ContainsFunc(lines, func(l string) bool {
					return strings.HasPrefix(l, "kerf run: ") &&
						strings.Contains(l, want)
				}) {
					t.Errorf("no line with %q in:\n%s", want, p.ErrOut.String())
				}
			}
		})
	}
}

// The status file also reports a flag that does not parse, wherever --status-file is. Flags of the command are not
// read.
func TestRunReportsAnUnknownFlag(t *testing.T) {
	dir := t.TempDir()
	for i, args := range [][]string{{"--cores", "2", "--status-file", "FILE"}, {"--status-file=FILE", "--cores"}} {
		file := filepath.Join(dir, "status"+string(rune('0'+i)))
		line := []string{"--run-dir", dir, "run"}
		for _, a := range args {
			line = append(line, strings.ReplaceAll(a, "FILE", file))
		}
		p := clitest.New(nil)
		code, _ := p.App.Execute(append(line, "--", "true", "--status-file", filepath.Join(dir, "not-ours")), Commands)
		if s := readStatus(t, file); code != 125 || s.State != "refused" || !strings.Contains(*s.Error, "--cores") {
			t.Errorf("%v: %d, %+v", args, code, s)
		}
	}
	p := clitest.New(nil)
	p.App.Execute([]string{"run", "--cores", "--", "true", "--status-file", filepath.Join(dir, "not-ours")}, Commands) //nolint:errcheck // refused
	if _, err := os.Stat(filepath.Join(dir, "not-ours")); err == nil {
		t.Error("a flag of the command was taken for kerf's")
	}
}

// The command is looked up as a shell does, before anything is reserved.
func TestRunLooksTheCommandUpFirst(t *testing.T) {
	bin := t.TempDir()
	clitest.WriteFile(t, bin, "plain", "x", 0o644)
	if err := os.Mkdir(filepath.Join(bin, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		command string
		code    int
	}{
		"not in PATH":               {"no-such-command", 127},
		"empty":                     {"", 127},
		"missing path":              {"/no/such/file", 127},
		"beneath a file":            {filepath.Join(bin, "plain", "x"), 127},
		"not executable":            {filepath.Join(bin, "plain"), 126},
		"directory":                 {bin, 126},
		"in PATH, not executable":   {"plain", 126},
		"in PATH, but a directory":  {"folder", 127},
		"a device":                  {"/dev/null", 126},
		"nothing but a slash":       {"/", 126},
		"here without dot in PATH":  {"run.go", 127},
		"here, and not executable.": {"./run.go", 126},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			agent := clitest.Granting(t, dir, nil)
			file := filepath.Join(dir, "status.json")
			p := clitest.New(map[string]string{"PATH": bin + ":/bin:/usr/bin"})
			code, _ := p.App.Execute([]string{"--run-dir", dir, "run", "--memory", "1GiB", "--status-file", file, "--",
				tt.command}, Commands)
			if code != tt.code || len(agent.Calls()) != 0 {
				t.Errorf("code %d, want %d; calls %v; %s", code, tt.code, agent.Calls(), p.ErrOut.String())
			}
			if s := readStatus(t, file); s.State != "refused" || s.Error == nil ||
				!strings.Contains(p.ErrOut.String(), *s.Error) {
				t.Errorf("status file: %+v", s)
			}
		})
	}
}

func TestRunGrantsWhatWasAsked(t *testing.T) {
	const uuid = "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	for name, tt := range map[string]struct {
		args []string
		want *nodeapi.ReserveRequest
	}{
		"memory":  {[]string{"--memory", "10GiB"}, &nodeapi.ReserveRequest{MemoryBytes: 10 << 30, GpuCount: 1}},
		"percent": {[]string{"--percent", "50%"}, &nodeapi.ReserveRequest{Percent: 50, GpuCount: 1}},
		"whole":   {[]string{"--gpus", "2"}, &nodeapi.ReserveRequest{GpuCount: 2, Whole: true}},
		"profile": {[]string{"--profile", "small"}, &nodeapi.ReserveRequest{Profile: "small"}},
		"everything": {[]string{"--memory", "20GiB", "--percent", "50", "--gpus", "2", "--gpu-model", "*H100*",
			"--gpu-model", "!T4",
			"--placement-policy", "spread", "--min-enforcement", "driver", "--name", "train"}, &nodeapi.ReserveRequest{
			Name: "train", MemoryBytes: 20 << 30, Percent: 50, GpuCount: 2, Models: []string{"*H100*", "!T4"},
			MinEnforcement: "driver", PlacementPolicy: "spread",
		}},
		"uuid": {[]string{"--memory", "1GiB", "--gpu-uuid", uuid}, &nodeapi.ReserveRequest{MemoryBytes: 1 << 30,
			GpuCount: 1, Uuids: []string{uuid}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var got *nodeapi.ReserveRequest
			(&fakenode.Server{OnReserve: func(r *nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
				got = r
				return nil, status.Error(codes.ResourceExhausted, "no")
			}}).Start(t, dir)
			p := clitest.New(map[string]string{"PATH": "/bin:/usr/bin"})
			p.App.Execute(append(append([]string{"--run-dir", dir, "run"}, tt.args...), "true"), Commands) //nolint:errcheck // refused by the agent
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What the agent refuses is said in its own words, on stderr and in the status file.
func TestRunReportsARefusal(t *testing.T) {
	dir := t.TempDir()
	file := clitest.WriteFile(t, dir, "status.json", "an old run's", 0o600)
	agent := (&fakenode.Server{OnReserve: func(*nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
		return nil, status.Error(codes.ResourceExhausted, "no GPU has 90GiB free: GPU 0 has 79GiB")
	}}).Start(t, dir)
	p := clitest.New(map[string]string{"PATH": "/bin:/usr/bin"})
	code, _ := p.App.Execute([]string{"--run-dir", dir, "run", "--memory", "90GiB", "--status-file", file, "true"},
		Commands)
	if code != 125 || p.ErrOut.String() != "kerf run: no GPU has 90GiB free: GPU 0 has 79GiB\n" {
		t.Errorf("got %d, %q", code, p.ErrOut.String())
	}
	s := readStatus(t, file)
	if s.State != "refused" || s.Error == nil || *s.Error != "no GPU has 90GiB free: GPU 0 has 79GiB" || s.GPUs == nil {
		t.Errorf("status file: %+v", s)
	}
	if diff := cmp.Diff([]string{"Reserve"}, agent.Calls()); diff != "" {
		t.Error(diff)
	}
}

func TestRunWritesTheGrantBeforeTheExec(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil)
	file := filepath.Join(dir, "status.json")
	p := clitest.New(map[string]string{"PATH": "/bin:/usr/bin"})
	var atExec runStatus
	exec := p.App.Exec
	p.App.Exec = func(path string, argv, env []string) error {
		atExec = readStatus(t, file)
		return exec(path, argv, env)
	}
	code, _ := p.App.Execute([]string{"--run-dir", dir, "run", "--memory", "10GiB", "--status-file", file, "true",
		"-x"},
		Commands)
	want := runStatus{
		State: "running", ID: "g-1", Name: "train", GPUs: []string{"GPU-a"}, MemoryBytes: 10 << 30, Percent: 25,
		Level:  "driver",
		Cgroup: "/sys/fs/cgroup/kerf/g-1", PID: os.Getpid(),
	}
	if diff := cmp.Diff(want, atExec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"true", "-x"}, p.Argv); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"HOME=/root", "PATH=/bin:/usr/bin", "CUDA_VISIBLE_DEVICES=GPU-a", "KERF_GRANT=g-1"},
		p.Env); diff != "" {
		t.Errorf("environment:\n%s", diff)
	}
	// The exec failed: the grant ends with this process, and the file must not go on saying that it runs.
	if s := readStatus(t, file); code != 126 || s.State != "refused" {
		t.Errorf("code %d, status file %+v", code, s)
	}
}

// A grant whose answer was lost may have been made: it must not be asked for again by a process that lives on.
func TestRunGivesUpWhenAGrantBreaksOff(t *testing.T) {
	dir := t.TempDir()
	leave := make(chan struct{})
	s := &fakenode.Server{}
	s.OnReserve = func(*nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
		go s.Kill()
		<-leave
		return nil, status.Error(codes.Canceled, "")
	}
	s.Start(t, dir)
	p := clitest.New(map[string]string{"PATH": "/bin:/usr/bin"})
	code, _ := p.App.Execute([]string{"--run-dir", dir, "run", "--memory", "1GiB", "true"}, Commands)
	close(leave)
	if code != 125 || !strings.Contains(p.ErrOut.String(), "went away") || len(s.Calls()) != 1 {
		t.Errorf("got %d, %q, calls %v", code, p.ErrOut.String(), s.Calls())
	}
}

func TestRunWaitsForAnAgentThatBecomesReady(t *testing.T) {
	dir := t.TempDir()
	s := clitest.Granting(t, dir, nil)
	grant := s.OnReserve
	calls := 0
	s.OnReserve = func(r *nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
		if calls++; calls < 3 {
			return nil, status.Error(codes.Unavailable, "not ready: no inventory yet")
		}
		return grant(r)
	}
	p := clitest.New(map[string]string{"PATH": "/bin:/usr/bin"})
	p.App.Execute([]string{"--run-dir", dir, "run", "--memory", "1GiB", "true"}, Commands) //nolint:errcheck // the exec of this test fails
	if p.Argv == nil {
		t.Errorf("it did not run: %s", p.ErrOut.String())
	}
}

func TestRunOverARestartOfTheAgent(t *testing.T) {
	dir := t.TempDir()
	clitest.Granting(t, dir, nil).Kill() // leaves a socket without a listener
	back := make(chan struct{})
	t.Cleanup(func() { <-back })
	r := clitest.Kerf(t, func(*exec.Cmd) {
		go func() {
			defer close(back)
			time.Sleep(300 * time.Millisecond) // kerf finds no agent at first
			clitest.Granting(t, dir, nil)
		}()
	}, "--run-dir", dir, "run", "--memory", "1GiB", "--", "echo", "ran")
	if r.Code != 0 || r.Out != "ran\n" {
		t.Errorf("got %d, %q, %q", r.Code, r.Out, r.ErrOut)
	}
}

// Ctrl-C while the agent is busy ends kerf as a signal does, and the status file says so.
func TestRunInterruptedWhileReserving(t *testing.T) {
	dir := t.TempDir()
	leave := make(chan struct{})
	t.Cleanup(func() { close(leave) })
	file := filepath.Join(dir, "status.json")
	var kerfProcess *os.Process
	started := make(chan struct{})
	(&fakenode.Server{OnReserve: func(*nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
		<-started
		_ = kerfProcess.Signal(syscall.SIGINT)
		<-leave
		return nil, status.Error(codes.Canceled, "")
	}}).Start(t, dir)
	c := exec.CommandContext(t.Context(), os.Args[0], "--run-dir", dir, "run", "--memory", "1GiB", "--status-file",
		file,
		"--", "true")
	c.Env = append(os.Environ(), clitest.AsKerf+"=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kerfProcess = c.Process
	close(started)
	_ = c.Wait()
	s, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	if died := ok && s.Signaled() && s.Signal() == syscall.SIGINT; !died && c.ProcessState.ExitCode() != 130 {
		t.Errorf("ended with %v, want SIGINT", c.ProcessState)
	}
	if s := readStatus(t, file); s.State != "refused" || s.Error == nil {
		t.Errorf("status file: %+v", s)
	}
}

// What the user should know is said once, and only when it is so.
func TestHideWarnings(t *testing.T) {
	activated := func(level string, capped bool) *nodeapi.ActivateResponse {
		return &nodeapi.ActivateResponse{
			Grant:         &nodeapi.Grant{Level: level, LevelReason: "driver 580 has no memory limits"},
			HiddenDevices: []string{"/dev/nvidia7"}, OtherGpusCapped: capped,
		}
	}
	for name, tt := range map[string]struct {
		activated *nodeapi.ActivateResponse
		want      []string
	}{
		"held, others capped":     {activated("driver", true), nil},
		"held, others not capped": {activated("exclusive", false), []string{"stay reachable"}},
		"not held":                {activated("none", true), []string{"not enforced (level none): driver 580"}},
		"only watched":            {activated("reactive", true), []string{"watched (level reactive)"}},
		"not known":               {activated("unknown", true), []string{"not enforced (level unknown)"}},
	} {
		t.Run(name, func(t *testing.T) {
			type answer struct {
				warnings []string
				err      error
			}
			got := make(chan answer)
			go func() {
				runtime.LockOSThread() // never unlocked: the thread without capabilities ends here
				header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
				var none [2]unix.CapUserData
				if err := unix.Capset(&header, &none[0]); err != nil {
					got <- answer{nil, err}
					return
				}
				w, _, err := hide(tt.activated)
				got <- answer{w, err}
			}()
			a := <-got
			if a.err != nil || len(a.warnings) != len(tt.want) {
				t.Fatalf("got %q, %v", a.warnings, a.err)
			}
			for i, want := range tt.want {
				if !strings.Contains(a.warnings[i], want) {
					t.Errorf("got %q, want %q", a.warnings[i], want)
				}
			}
		})
	}
}

// readStatus is the status file's document.
func readStatus(t *testing.T, path string) runStatus {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s runStatus
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}
