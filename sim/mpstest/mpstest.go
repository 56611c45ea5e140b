// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mpstest gives tests a simulated node with the programs of MPS, and clients for them that are no programs.
// It is for tests alone and does not run NVIDIA's own programs.
package mpstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/launch"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/mps"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Build makes the program that stands in for NVIDIA's, in dir, and returns its path.
func Build(dir string) (string, error) {
	path := filepath.Join(dir, "gpusim")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/kerf-gpu/kerf/sim/cmd/gpusim") //nolint:noctx // a test's own time limit ends it
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gpusim: %w\n%s", err, out)
	}
	return path, nil
}

// Run builds the program for a package's tests, tells set its path, runs them, and returns what TestMain exits with.
func Run(m *testing.M, set func(exe string)) int {
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is a temporary file
	exe, err := Build(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	set(exe)
	return m.Run()
}

// Node runs a simulated driver in this process until the test ends, with MPS's programs in DIR/bin, and returns DIR,
// whose path is short enough for sockets below it.
func Node(t testing.TB, exe, name, driver string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	mach, err1 := machine.Load(name)
	drv, err2 := machine.FindDriver(driver)
	d, err3 := daemon.New(daemon.Options{Dir: dir, Machine: mach, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	if err := errors.Join(err1, err2, err3, launch.InstallPrograms(exe, dir, mps.ControlName,
		mps.ServerName)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Client is a process that a control daemon takes for one of its clients: this one.
type Client struct{ conn net.Conn }

// Connect becomes a client and returns what the daemon says, in lines; the first is "server PID PERCENT" or "fail
// CODE". The client leaves when the test ends.
func Connect(t testing.TB, pipe string) (Client, []string) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "unix", pipe+"/control")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // it may have left
	if _, err := io.WriteString(conn, "client\n"); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(conn); s.Scan() && s.Text() != "end"; {
		lines = append(lines, s.Text())
	}
	if len(lines) == 0 {
		t.Fatal("the control daemon says nothing to a client")
	}
	return Client{conn}, lines
}

// Leave ends the client.
func (c Client) Leave() { _ = c.conn.Close() }

// WaitReleased waits until the simulated driver of dir has no memory of a process that has ended. Only then can another
// process take a GPU that one process has alone.
func WaitReleased(t testing.TB, dir string, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var on []control.Process
		if err := control.Call(ctx, dir, control.Request{Command: control.CmdProcesses}, &on); err != nil {
			t.Fatalf("process %d stays on a GPU: %v", pid, err)
		}
		if !slices.ContainsFunc(on, func(p control.Process) bool { return p.PID == pid }) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("process %d stays on a GPU: %v", pid, on)
		}
	}
}

// UUID returns the UUID of a node's GPU.
func UUID(dir, name string, index int) string { return machine.UUID(dir, name, index) }

// Exclusive is NVML's number of the compute mode in which a GPU takes one process alone.
const Exclusive = uint64(model.ComputeExclusiveProcess)

// ComputeMode reads a GPU's compute mode, after setting it to set[0] if that is given.
func ComputeMode(dir string, minor int, set ...uint64) (uint64, error) {
	req := wire.Request{Op: wire.OpComputeMode}
	req.Args[0] = wire.Unknown
	if len(set) > 0 {
		req.Args[0] = set[0]
	}
	packet, err := req.Encode()
	if err != nil {
		return 0, err
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: fmt.Sprintf("%s/dev/nvidia%d", dir, minor),
		Net: "unixpacket"})
	if err != nil {
		return 0, fmt.Errorf("compute mode: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write(packet); err != nil {
		return 0, fmt.Errorf("compute mode: %w", err)
	}
	buf := make([]byte, wire.MaxResponse)
	n, err := conn.Read(buf)
	if err != nil {
		return 0, fmt.Errorf("compute mode: %w", err)
	}
	resp, err := wire.DecodeResponse(buf[:n])
	if err != nil || resp.Status != wire.OK {
		return 0, fmt.Errorf("compute mode: %w", errors.Join(err, resp.Status))
	}
	return resp.Vals[0], nil
}
