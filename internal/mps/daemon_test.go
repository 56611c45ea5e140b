// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/mpstest"
)

const machineName = "h100x8"

// onNode returns a daemon of a simulated node's GPU 2 that has not been started.
func onNode(t *testing.T) Daemon {
	t.Helper()
	dir := mpstest.Node(t, gpusim, machineName, "r580")
	program, err := Find(filepath.Join(dir, "bin"), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := Daemon{Program: program, Pipe: dir + "/p", Logs: dir + "/l",
		GPU: sharing.GPUID(mpstest.UUID(dir, machineName, 2))}
	for _, p := range []string{d.Pipe, d.Logs} {
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// started starts it, waits until it answers, and ends it with the test.
func (d Daemon) started(t *testing.T) Daemon {
	t.Helper()
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Quit(context.Background(), 0); err != nil && !errors.Is(err, sharing.ErrUnavailable) {
			t.Error(err)
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := d.Servers(t.Context())
		if err == nil {
			return d
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestDaemon(t *testing.T) {
	ctx := t.Context()
	d := onNode(t)
	if _, err := d.Servers(ctx); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("before its start: %v", err)
	}
	d = d.started(t)
	if err := d.Start(ctx); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a second start: %v", err)
	}
	err := errors.Join(d.SetDefaultMemory(ctx, 10*sharing.GiB+1), d.SetDefaultPercent(ctx, 30),
		d.StartServer(ctx, uint32(os.Getuid())))
	servers, err2 := d.Servers(ctx)
	if err := errors.Join(err, err2); err != nil || len(servers) != 1 {
		t.Fatalf("servers %v, %v", servers, err)
	}
	if p, err := d.DefaultPercent(ctx); err != nil || p != 30 {
		t.Errorf("default percent: %v, %v", p, err)
	}
	_, terms := mpstest.Connect(t, d.Pipe)
	if want := []string{fmt.Sprintf("server %d 30", servers[0]),
		fmt.Sprintf("%s %d", d.GPU, 10*sharing.GiB)}; !slices.Equal(terms, want) {
		t.Errorf("a client gets %q, want %q", terms, want)
	}
	if err := errors.Join(d.SetMemory(ctx, servers[0], sharing.GiB), d.SetPercent(ctx, servers[0], 5)); err != nil {
		t.Error(err)
	}
	if _, terms := mpstest.Connect(t, d.Pipe); terms[0] != fmt.Sprintf("server %d 5", servers[0]) ||
		!strings.HasSuffix(terms[1], " 1073741824") {
		t.Errorf("the next client gets %q", terms)
	}
	if clients, err := d.Clients(ctx, servers[0]); err != nil || !slices.Equal(clients, []int{os.Getpid()}) {
		t.Errorf("clients %v, %v", clients, err)
	}
	for name, err := range map[string]error{
		"clients of no server": second(d.Clients(ctx, 1)), "memory of no server": d.SetMemory(ctx, 1, sharing.GiB),
		"no such share": d.SetPercent(ctx, servers[0], 200),
	} {
		if !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := d.SetDefaultMemory(ctx, 1); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a limit of one byte: %v", err)
	}
	found, err := Running(filepath.Dir(d.Pipe))
	if err != nil || len(found) != 2 || found[0].Server == found[1].Server || found[0].Pipe != d.Pipe ||
		found[0].Start == 0 {
		t.Errorf("running: %+v, %v", found, err)
	}
	if other, err := Running(d.Pipe + "x"); err != nil || len(other) != 0 {
		t.Errorf("running elsewhere: %+v, %v", other, err)
	}
	if err := d.StopServer(ctx, servers[0]); err != nil {
		t.Error(err)
	}
	if err := d.Quit(ctx, 0); err != nil {
		t.Error(err)
	}
	// It answers to quit first, and ends then.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := d.Servers(ctx)
		if errors.Is(err, sharing.ErrUnavailable) {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("after its end: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// What hangs ends with the caller's deadline, and what prints nonsense is no answer.
func TestBadPrograms(t *testing.T) {
	for name, script := range map[string]string{
		"hangs":           "exec sleep 60",
		"is killed":       "kill -9 $$",
		"fails":           "echo no; exit 3",
		"prints nonsense": "cat >/dev/null; echo 12 apples",
		"prints endless":  "cat >/dev/null; yes 1 | head -c 3000000",
	} {
		dir := t.TempDir()
		for _, n := range []string{controlName, serverName} {
			if err := os.WriteFile(filepath.Join(dir, n), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		program, err := Find(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		program.Env = []string{"PATH=" + os.Getenv("PATH")}
		limit := time.Minute
		if name == "hangs" {
			limit = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		d := Daemon{Program: program, Pipe: dir, Logs: dir, GPU: "GPU-1"}
		if got, err := d.Servers(ctx); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("a program that %s: %v, %v", name, got, err)
		}
		cancel()
	}
}

func TestFind(t *testing.T) {
	full, half := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		full + "/" + controlName: 0o700, full + "/" + serverName: 0o700, half + "/" + controlName: 0o700,
		half + "/" + serverName: 0o600,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := Find("/nowhere:"+full, nil); err != nil || p.Path != full+"/"+controlName {
		t.Errorf("found %+v, %v", p, err)
	}
	for _, path := range []string{"", "/nowhere", half, "relative"} {
		if _, err := Find(path, nil); !errors.Is(err, sharing.ErrUnsupported) ||
			!strings.Contains(err.Error(), "install") {
			t.Errorf("in %q: %v", path, err)
		}
	}
}

// Daemons and servers get the folders in which the driver's library lies.
func TestLibraryPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{controlName, serverName} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho \"$LD_LIBRARY_PATH\"\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
	}
	for want, libraries := range map[string][]string{"": nil, "/a": {"/a"},
		"/usr/local/nvidia/lib64:/b": {"/usr/local/nvidia/lib64", "/b"}} {
		program, err := Find(dir, libraries)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := program.run(t.Context(), nil, ""); err != nil || got != want+"\n" {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

func TestCheckPipe(t *testing.T) {
	for dir, ok := range map[string]bool{
		"/run/kerf/mps/a/b/pipe": true, "/" + strings.Repeat("x", maxSocket-len(longestSocket)-1): true,
		"/" + strings.Repeat("x", maxSocket-len(longestSocket)): false, "pipe": false, "": false, "/a\nb": false,
	} {
		if err := CheckPipe(dir); (err == nil) != ok || err != nil && !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%q: %v", dir, err)
		}
	}
	long := Daemon{Pipe: "/" + strings.Repeat("x", 200)}
	if err := long.Start(t.Context()); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("start with a path too long: %v", err)
	}
}

func TestClientEnv(t *testing.T) {
	got, err := ClientEnv("/run/p", 10*sharing.GiB, 25)
	want := []string{"CUDA_MPS_PIPE_DIRECTORY=/run/p", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ClientEnv("/run/p", sharing.GiB, 0); err != nil || len(got) != 2 {
		t.Errorf("without a share: %q, %v", got, err)
	}
	if _, err := ClientEnv("/run/p", 5, 0); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("five bytes: %v", err)
	}
}

// An admin's client of a daemon is not taken for a second daemon.
func TestRunningWithoutClients(t *testing.T) {
	d := onNode(t).started(t)
	client := exec.CommandContext(t.Context(), d.Program.Path) // #nosec G204 -- the simulator's program
	client.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.Pipe, "CUDA_MPS_LOG_DIRECTORY=" + d.Logs}
	in, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	found, err := Running(filepath.Dir(d.Pipe))
	if err != nil || len(found) != 1 || found[0].PID == client.Process.Pid || found[0].Server {
		t.Errorf("with a client %d: %+v, %v", client.Process.Pid, found, err)
	}
	if err := errors.Join(in.Close(), client.Wait()); err != nil {
		t.Error(err)
	}
}
