// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/control"
)

// commandVar makes the test program gpusim itself, also as the daemon that it starts.
const commandVar = "GPUSIM_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// gpusim runs the command and returns its exit status and output.
func gpusim(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command("/proc/self/exe", args...)
	// The race detector would have each process wait a second at its end.
	cmd.Env = append(os.Environ(), commandVar+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// ok runs the command, which must work, and returns its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := gpusim(t, args...)
	if code != 0 {
		t.Fatalf("gpusim %q exits %d: %s", args, code, stderr)
	}
	return stdout
}

// place makes a directory for a node and a folder of libraries.
func place(t *testing.T) (dir, libs string) {
	t.Helper()
	root, err := os.MkdirTemp("", "gpusim") // t.TempDir's names are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	libs = filepath.Join(root, "libs")
	for _, driver := range []string{"r550", "r580", "r615"} {
		for _, lib := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
			p := filepath.Join(libs, driver, lib)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(driver), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(libs, "nvidia-smi"), []byte("#!/bin/sh\necho \"$0\" \"$@\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "node")
	t.Cleanup(func() { gpusim(t, "stop", "--dir", dir) })
	return dir, libs
}

func gpus(t *testing.T, dir string) []control.GPU {
	t.Helper()
	var list []control.GPU
	if err := json.Unmarshal([]byte(ok(t, "gpus", "--dir", dir, "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestLifeOfANode(t *testing.T) {
	dir, libs := place(t)
	if out := ok(t, "stop", "--dir", dir); !strings.Contains(out, "no simulated driver runs") {
		t.Errorf("stop before the start: %q", out)
	}
	out := ok(t, "start", "--machine", "t4x4", "--driver", "r580", "--dir", dir, "--lib-dir", libs)
	if !strings.Contains(out, "simulating t4x4 with driver 580.95.05") {
		t.Errorf("start: %q", out)
	}
	before := gpus(t, dir)
	if len(before) != 4 || before[3].Model != "Tesla T4" {
		t.Fatalf("gpus %+v", before)
	}
	code, _, stderr := gpusim(t, "start", "--machine", "h100x8", "--dir", dir, "--lib-dir", libs)
	if code != 1 || !strings.Contains(stderr, "already") {
		t.Errorf("a second start: %d, %q", code, stderr)
	}
	if lib, err := os.ReadFile(filepath.Join(dir, "lib", "libcuda.so.1")); err != nil || string(lib) != "r580" {
		t.Errorf("a refused start changed the libraries: %q, %v", lib, err)
	}
	ok(t, "set", "--dir", dir, "gpu=2", "util=80", "lost=true")
	if g := gpus(t, dir); !g[2].Lost || g[1].Lost {
		t.Errorf("after set: %+v", g)
	}
	for _, list := range []string{"processes", "limits"} {
		if out := ok(t, list, "--dir", dir, "-o", "json"); strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %q", list, out)
		}
		if out := ok(t, list, "--dir", dir); !strings.Contains(out, "CGROUP") {
			t.Errorf("%s: %q", list, out)
		}
	}
	if out := ok(t, "env", "--dir", dir); !strings.HasPrefix(out, "export LD_LIBRARY_PATH="+dir+"/lib") {
		t.Errorf("env: %q", out)
	}

	kill(t, dir)
	code, _, stderr = gpusim(t, "gpus", "--dir", dir)
	if code != 1 || !strings.Contains(stderr, "gpusim start") {
		t.Errorf("gpus of a killed daemon: %d, %q", code, stderr)
	}
	ok(t, "start", "--machine", "t4x4", "--dir", dir, "--lib-dir", libs)
	after := gpus(t, dir)
	if after[0].UUID != before[0].UUID || after[2].Lost {
		t.Errorf("the same node again: %+v", after)
	}
	if lib, err := os.ReadFile(filepath.Join(dir, "lib", "libcuda.so.1")); err != nil || string(lib) != "r615" {
		t.Errorf("libraries of the new driver: %q, %v", lib, err)
	}

	if out := ok(t, "stop", "--dir", dir); !strings.Contains(out, "stopped process") {
		t.Errorf("stop: %q", out)
	}
	if out := ok(t, "stop", "--dir", dir); !strings.Contains(out, "no simulated driver runs") {
		t.Errorf("stop again: %q", out)
	}
	left, err := filepath.Glob(filepath.Join(dir, "dev", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// kill ends the daemon of a node without a chance to clean up.
func kill(t *testing.T, dir string) {
	t.Helper()
	var s control.Status
	if err := control.Call(t.Context(), dir, control.Request{Command: control.CmdStatus}, &s); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); n != 1 {
		t.Fatalf("the daemon does not die: %v", err)
	}
}

func TestStopEndsADaemonThatHangs(t *testing.T) {
	dir, libs := place(t)
	ok(t, "start", "--machine", "t4x4", "--dir", dir, "--lib-dir", libs)
	var s control.Status
	if err := control.Call(t.Context(), dir, control.Request{Command: control.CmdStatus}, &s); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(s.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ok(t, "stop", "--dir", dir)
	if d := time.Since(began); d > time.Minute {
		t.Errorf("it took %v", d)
	}
	if _, err := os.Stat(filepath.Join(dir, "control.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestTwoNodesShareNoUUID(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		dir, libs := place(t)
		ok(t, "start", "--machine", "mixed", "--dir", dir, "--lib-dir", libs)
		for _, g := range gpus(t, dir) {
			for _, id := range append(g.Instances, g.UUID) {
				if seen[id] {
					t.Errorf("%s is seen twice", id)
				}
				seen[id] = true
			}
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d UUIDs", len(seen))
	}
}

func TestOwnMachineFile(t *testing.T) {
	dir, libs := place(t)
	good, bad := filepath.Join(libs, "own.yaml"), filepath.Join(libs, "bad.yaml")
	for p, text := range map[string]string{
		good: "name: own\nmemacct: misc\ngpus: [{model: t4}]\n",
		bad:  "name: own\ngpus: [{model: v1, numa: -2}]\n",
	} {
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, _, stderr := gpusim(t, "start", "--machine", bad, "--dir", dir, "--lib-dir", libs)
	if code != 2 || !strings.Contains(stderr, "gpus[0].model") || !strings.Contains(stderr, "gpus[0].numa") {
		t.Errorf("%d, %s", code, stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused start left %q: %v", dir, err)
	}
	ok(t, "start", "--machine", good, "--dir", dir, "--lib-dir", libs)
	if g := gpus(t, dir); len(g) != 1 {
		t.Errorf("%+v", g)
	}
}

func TestBadUse(t *testing.T) {
	dir, libs := place(t)
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown command": {[]string{"frob"}, 2, `"frob"`},
		"unknown flag":    {[]string{"gpus", "--colour"}, 2, "--colour"},
		"a word too many": {[]string{"gpus", "x"}, 2, `"x"`},
		"no dir":          {[]string{"gpus"}, 2, "--dir"},
		"no such dir":     {[]string{"processes", "--dir", dir}, 1, "no directory"},
		"nothing runs":    {[]string{"limits", "--dir", libs}, 1, "gpusim start"},
		"no node":         {[]string{"env", "--dir", libs}, 1, "gpusim start"},
		"output":          {[]string{"gpus", "--dir", dir, "-o", "xml"}, 2, `--output "xml"`},
		"no machine":      {[]string{"start", "--dir", dir}, 2, "--machine is missing"},
		"unknown machine": {[]string{"start", "--machine", "dgx", "--dir", dir}, 2,
			"h100x8, h200x8, l40sx4, mixed, rtxpro6000x4, t4x4"},
		"no such file": {[]string{"start", "--machine", "./dgx.yaml", "--dir", dir}, 1, "dgx.yaml"},
		"unknown driver": {[]string{"start", "--machine", "t4x4", "--driver", "r1", "--dir", dir}, 2,
			"r550, r580, r615"},
		"unknown sharing": {[]string{"start", "--machine", "t4x4", "--sharing", "turns", "--dir", dir}, 2,
			"slices or fifo"},
		"no libraries": {[]string{"start", "--machine", "t4x4", "--lib-dir", dir, "--dir", dir}, 1, "--lib-dir"},
		"dir is too long": {[]string{"start", "--machine", "t4x4", "--lib-dir", libs, "--dir",
			"/tmp/" + strings.Repeat("x", 100)}, 2, "--dir"},
		"dir is a file": {[]string{"start", "--machine", "t4x4", "--lib-dir", libs, "--dir",
			libs + "/r615/libcuda.so.1"}, 1, "not a directory"},
		"set nothing":      {[]string{"set", "--dir", dir}, 2, "gpu is missing"},
		"set nonsense":     {[]string{"set", "--dir", dir, "gpu=0", "lost=maybe"}, 2, `lost "maybe"`},
		"stop without dir": {[]string{"stop"}, 2, "--dir"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := gpusim(t, tt.args...)
			if code != tt.code || !strings.Contains(stderr, tt.want) || stdout != "" {
				t.Errorf("exits %d with %q and %q, want %d and %q", code, stdout, stderr, tt.code, tt.want)
			}
		})
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused command left %q: %v", dir, err)
	}
}

func TestMachines(t *testing.T) {
	var doc struct {
		Machines []machineRow
		Drivers  []driverRow
	}
	if err := json.Unmarshal([]byte(ok(t, "machines", "-o", "json")), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Machines) != 10 || len(doc.Drivers) != 3 || doc.Drivers[2].CUDA != "13.4" {
		t.Errorf("%+v", doc)
	}
}
