// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
)

// asKerf makes the test binary behave as kerf itself, so that what happens at the exec is real.
const asKerf = "KERF_TEST_AS_KERF"

func TestMain(m *testing.M) {
	if os.Getenv(asKerf) == "1" {
		beKerf()
	}
	// A test run in the background of a script starts with these ignored, and so would all that it starts. A
	// handler makes them the defaults again in what is executed from here.
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// beKerf does what cmd/kerf does.
func beKerf() {
	code, stopped := Main(os.Args, Process{
		In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr, Getenv: os.Getenv, Environ: os.Environ, Exec: syscall.Exec,
	})
	if stopped != 0 {
		signal.Reset(stopped)
		_ = syscall.Kill(syscall.Getpid(), stopped)
	}
	os.Exit(code)
}

// result is how a kerf process ended.
type result struct {
	code        int // -1 when a signal ended it
	out, errOut string
	state       *os.ProcessState
	pid         int
}

// kerf is a real kerf process with these arguments; change may alter it before it starts.
func kerf(t *testing.T, change func(*exec.Cmd), args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), asKerf+"=1")
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if change != nil {
		change(c)
	}
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{c.ProcessState.ExitCode(), out.String(), errOut.String(), c.ProcessState, c.Process.Pid}
}

// inProcess is kerf within the test, with an exec that fails after it was noted.
type inProcess struct {
	app         *app
	out, errOut bytes.Buffer
	// argv and env are those of the exec, if there was one.
	argv, env []string
}

var errNotRun = errors.New("this test executes nothing")

func newInProcess(env map[string]string) *inProcess {
	p := &inProcess{}
	p.app = &app{
		in: strings.NewReader(""), out: &p.out, errOut: &p.errOut,
		getenv:  func(k string) string { return env[k] },
		environ: func() []string { return []string{"HOME=/root", "CUDA_VISIBLE_DEVICES=7", "PATH=" + env["PATH"]} },
		screen:  func() (int, int, bool) { return 0, 0, false },
		exec: func(_ string, argv, env []string) error {
			p.argv, p.env = slices.Clone(argv), slices.Clone(env)
			return errNotRun
		},
	}
	return p
}

// granting is an agent that grants everything.
func granting(t *testing.T, dir string, change func(*nodev1.ArmResponse)) *fakenode.Server {
	t.Helper()
	grant := &nodev1.Grant{
		Id: "g-1", Name: "train", State: "leased", MemoryBytes: 10 << 30, Percent: 25, Level: "driver", Cgroup: "/sys/fs/cgroup/kerf/g-1",
		Fragments: []*nodev1.Fragment{{Gpu: "GPU-a", MemoryBytes: 10 << 30, Percent: 25}},
	}
	armed := &nodev1.ArmResponse{Grant: grant, Env: map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-a", "KERF_GRANT": "g-1"}}
	if change != nil {
		change(armed)
	}
	return (&fakenode.Server{
		OnClaim: func(*nodev1.ClaimRequest) (*nodev1.ClaimResponse, error) {
			return &nodev1.ClaimResponse{Grant: grant}, nil
		},
		OnArm: func(*nodev1.ArmRequest) (*nodev1.ArmResponse, error) { return armed, nil },
	}).Start(t, dir)
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

// write makes a file with this mode and returns its path.
func write(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}
