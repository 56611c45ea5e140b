// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package clitest runs commands of kerf in tests: within the test, as processes, on a pseudo terminal, and against a
// cluster in miniature.
package clitest

import (
	"bytes"
	"context"
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

	"github.com/spf13/cobra"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
)

// AsKerf makes the test binary behave as kerf itself, so that what happens at the exec is real.
const AsKerf = "KERF_TEST_AS_KERF"

// Main runs the tests of a package, or is kerf with its commands.
func Main(m *testing.M, commands command.Family) {
	if os.Getenv(AsKerf) == "1" {
		beKerf(commands)
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
func beKerf(commands command.Family) {
	code, stopped := command.Main(os.Args, command.Process{
		In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr, Getenv: os.Getenv, Environ: os.Environ, Exec: syscall.Exec,
	}, func(a *command.App) *cobra.Command { return a.Root(commands) })
	if stopped != 0 {
		signal.Reset(stopped)
		_ = syscall.Kill(syscall.Getpid(), stopped)
	}
	os.Exit(code)
}

// Result is how a kerf process ended.
type Result struct {
	Code        int // -1 when a signal ended it
	Out, ErrOut string
	State       *os.ProcessState
	Pid         int
}

// Kerf is a real kerf process with these arguments; change may alter it before it starts.
func Kerf(t *testing.T, change func(*exec.Cmd), args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), AsKerf+"=1")
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
	return Result{c.ProcessState.ExitCode(), out.String(), errOut.String(), c.ProcessState, c.Process.Pid}
}

// InProcess is kerf within the test, with an exec that fails after it was noted.
type InProcess struct {
	App         *command.App
	Out, ErrOut bytes.Buffer
	// Argv and Env are those of the exec, if there was one.
	Argv, Env []string
}

var errNotRun = errors.New("this test executes nothing")

// New is kerf with these variables of the environment.
func New(env map[string]string) *InProcess {
	p := &InProcess{}
	p.App = &command.App{
		In: strings.NewReader(""), Out: &p.Out, ErrOut: &p.ErrOut, Version: "test",
		Getenv:  func(k string) string { return env[k] },
		Environ: func() []string { return []string{"HOME=/root", "CUDA_VISIBLE_DEVICES=7", "PATH=" + env["PATH"]} },
		Screen:  func() (int, int, bool) { return 0, 0, false },
		Exec: func(_ string, argv, env []string) error {
			p.Argv, p.Env = slices.Clone(argv), slices.Clone(env)
			return errNotRun
		},
	}
	return p
}

// Granting is an agent that grants everything.
func Granting(t *testing.T, dir string, change func(*nodeapi.ActivateResponse)) *fakenode.Server {
	t.Helper()
	grant := &nodeapi.Grant{
		Id: "g-1", Name: "train", State: "Active", MemoryBytes: 10 << 30, Percent: 25, Level: "driver",
		Cgroup: "/sys/fs/cgroup/kerf/g-1",
		Shares: []*nodeapi.Share{{Gpu: "GPU-a", MemoryBytes: 10 << 30, Percent: 25}},
	}
	activated := &nodeapi.ActivateResponse{Grant: grant, Env: map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-a",
		"KERF_GRANT": "g-1"}}
	if change != nil {
		change(activated)
	}
	return (&fakenode.Server{
		OnReserve: func(*nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
			return &nodeapi.ReserveResponse{Grant: grant}, nil
		},
		OnActivate: func(*nodeapi.ActivateRequest) (*nodeapi.ActivateResponse, error) { return activated, nil },
	}).Start(t, dir)
}

// WriteFile makes a file with this mode and returns its path.
func WriteFile(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// Node is a machine with one GPU, on which each of the names holds a grant.
func Node(ready bool, names ...string) *nodeapi.GetNodeResponse {
	p := &nodeapi.GetNodeResponse{
		Ready: ready, DriverVersion: "615.71.09",
		Gpus: []*nodeapi.GPU{{Uuid: "GPU-a", Model: "NVIDIA H100", CapacityBytes: new(uint64(80 << 30)),
			Health: "healthy", Levels: []string{"driver"}}},
	}
	if !ready {
		p.NotReady = []string{"no driver"}
	}
	for _, n := range names {
		p.Grants = append(p.Grants, &nodeapi.Grant{Id: "id-" + n, Name: n, Level: "driver",
			Shares: []*nodeapi.Share{{Gpu: "GPU-a", MemoryBytes: 1 << 30}}})
	}
	return p
}
