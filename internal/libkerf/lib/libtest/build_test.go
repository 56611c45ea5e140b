// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/model"
)

const (
	mib = sharing.Bytes(1) << 20
	gib = sharing.Bytes(1) << 30
	oom = "2"
)

// built is where TestMain's make put the library, the driver and the programs. sanitizeVar has the
// compiler's flags for a sanitizer.
var built string

const sanitizeVar = "KERF_TEST_SANITIZE"

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "libkerf")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	sanitize := "SANITIZE=" + os.Getenv(sanitizeVar)
	for _, args := range [][]string{
		{"-C", "../../../../sim/lib", "OUT=" + dir, "CFLAGS=-O0", sanitize, "gpuload", dir + "/r550/libcuda.so.1",
			dir + "/r580/libcuda.so.1", dir + "/r580/libnvidia-ml.so.1"},
		{"-C", "..", "OUT=" + dir, "CFLAGS=-O0 -g", sanitize, "SIM=" + dir + "/r580", "all", "checks"},
	} {
		if out, err := exec.Command("make", append([]string{"-s", "-j2"}, args...)...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "make %q: %v\n%s", args, err, out)
			return 1
		}
	}
	if err := libkerf.MakePreload(built); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// node is a simulated machine.
type node struct {
	dir, name, driver string
}

func start(tb testing.TB, name, driver string) node {
	tb.Helper()
	return startShared(tb, name, driver, machine.SharingFIFO)
}

// startShared starts a machine whose time is shared in some way.
func startShared(tb testing.TB, name, driver string, how machine.Sharing) node {
	tb.Helper()
	dir, err := os.MkdirTemp("", "n") // a short path: sockets' addresses are
	if err != nil {
		tb.Fatal(err)
	}
	m, err := machine.Load(name)
	if err != nil {
		tb.Fatal(err)
	}
	drv, err := machine.FindDriver(driver)
	if err != nil {
		tb.Fatal(err)
	}
	m, _ = m.WithoutCosts().Shared(how)
	d, err := daemon.New(daemon.Options{Dir: dir, Machine: m, Driver: drv,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(built, driver), filepath.Join(dir, "lib")); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("daemon: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return node{dir, name, driver}
}

func (n node) gpu(minor int) sharing.GPURef {
	return sharing.GPURef{UUID: sharing.GPUID(machine.UUID(n.dir, n.name, minor))}
}

// holds is what the driver says that a process holds on its GPUs, contexts included; 0: all processes together.
func (n node) holds(tb testing.TB, pid int) sharing.Bytes {
	tb.Helper()
	var all []control.Process
	n.ask(tb, control.Request{Command: control.CmdProcesses}, &all)
	var sum sharing.Bytes
	for _, p := range all {
		if pid == 0 || p.PID == pid {
			sum += p.Bytes
		}
	}
	return sum
}

// countPeak has the driver restart its count of the highest usage, which peak returns: it misses nothing between two
// readings.
func (n node) countPeak(tb testing.TB) {
	tb.Helper()
	n.ask(tb, control.Request{Command: control.CmdSet,
		Set: &control.Set{All: true, Change: model.Change{CountPeak: true}}}, nil)
}

func (n node) peak(tb testing.TB) (sum sharing.Bytes) {
	tb.Helper()
	var s control.Status
	n.ask(tb, control.Request{Command: control.CmdStatus}, &s)
	for _, g := range s.GPUs {
		sum += g.PeakBytes
	}
	return sum
}

func (n node) ask(tb testing.TB, r control.Request, answer any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := control.Call(ctx, n.dir, r, answer); err != nil {
		tb.Fatal(err)
	}
}

// box is a container's view: the library with its region next to it.
type box struct {
	node
	dir    string
	region *libkerf.UsageFile
}

// cap puts limits on a node's first GPUs.
func (n node) cap(tb testing.TB, limits ...sharing.Bytes) box {
	tb.Helper()
	b := box{node: n, dir: tb.TempDir()}
	var devices []libkerf.Device
	for i, l := range limits {
		devices = append(devices, libkerf.Device{GPU: n.gpu(i), Limit: l})
	}
	r, err := libkerf.Create(b.dir, devices)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	})
	b.region = r
	b.install(tb)
	return b
}

// install puts the library into the region's folder, with the names that programs preload it by.
func (b box) install(tb testing.TB) {
	tb.Helper()
	if err := os.Link(filepath.Join(built, libkerf.LibraryFile),
		filepath.Join(b.dir, libkerf.LibraryFile)); err != nil {
		tb.Fatal(err)
	}
	if err := libkerf.MakePreload(b.dir); err != nil {
		tb.Fatal(err)
	}
}

func (b box) used() sharing.Bytes { return b.region.Usage()[0].Used }

// reclaim gives back what the dead held; the tests' processes have all ended when it is called.
func (b box) reclaim(tb testing.TB) {
	tb.Helper()
	graves, err := b.region.Dead(ended)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := b.region.Bury(graves); err != nil {
		tb.Fatal(err)
	}
}

func (b box) environment() []string {
	return []string{"LD_LIBRARY_PATH=" + filepath.Join(b.node.dir, "lib"), "LD_PRELOAD=" + libkerf.PreloadPath(b.dir)}
}

func (b box) command(tb testing.TB, env []string, name string, args ...string) (cmd *exec.Cmd, out,
	errout *bytes.Buffer) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	tb.Cleanup(cancel)
	out, errout = &bytes.Buffer{}, &bytes.Buffer{}
	if !filepath.IsAbs(name) {
		name = filepath.Join(built, name)
	}
	cmd = exec.CommandContext(ctx, name, args...)
	cmd.Env = append(b.environment(), env...)
	if options := os.Getenv("ASAN_OPTIONS"); options != "" && !slices.ContainsFunc(env, isASANOptions) {
		cmd.Env = append(cmd.Env, "ASAN_OPTIONS="+options)
	}
	cmd.Stdout, cmd.Stderr = out, errout
	return cmd, out, errout
}

// check runs kerfcheck, which must end well and say nothing but what it prints, and returns its lines.
func (b box) check(tb testing.TB, steps ...string) string {
	tb.Helper()
	return b.program(tb, nil, "check/kerfcheck", steps...)
}

func (b box) program(tb testing.TB, env []string, name string, steps ...string) string {
	tb.Helper()
	cmd, out, errout := b.command(tb, env, name, steps...)
	if err := cmd.Run(); err != nil || errout.Len() > 0 {
		tb.Fatalf("%s %q: %v\n%s%s", name, steps, err, out, errout)
	}
	return strings.Join(strings.Split(strings.TrimSpace(out.String()), "\n"), "|")
}

// ended is a program's status and what it said.
func (b box) ended(tb testing.TB, env []string, name string, steps ...string) (code int, out, errout string) {
	tb.Helper()
	cmd, o, e := b.command(tb, env, name, steps...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(o.String()), e.String()
}

func isASANOptions(v string) bool { return strings.HasPrefix(v, "ASAN_OPTIONS=") }
