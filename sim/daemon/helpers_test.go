// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const (
	mib = uint64(1) << 20
	gib = uint64(1) << 30

	// tenantVar makes the test program a tenant of the simulated node in that directory.
	tenantVar = "GPUSIM_TEST_TENANT"
	// nestVar makes a tenant run in a new pid namespace, as a child of what was started.
	nestVar = "GPUSIM_TEST_NEST"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(tenantVar); dir != "" {
		if os.Getenv(nestVar) != "" {
			nest()
			return
		}
		tenant(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// node is a daemon that runs in this process.
type node struct {
	t   *testing.T
	dir string
	d   *Daemon
}

// start runs a daemon until the test ends.
func start(t *testing.T, mach machine.Machine, driver string) node {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpusim") // t.TempDir's names are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	drv, err := machine.FindDriver(driver)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Dir: dir, Machine: mach, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "dev", "*")); err != nil || len(left) > 0 {
			t.Errorf("sockets are left: %v, %v", left, err)
		}
		os.RemoveAll(dir)
	})
	return node{t: t, dir: dir, d: d}
}

func load(t *testing.T, name string) machine.Machine {
	t.Helper()
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// caller is a library's side of a connection.
type caller struct {
	t    *testing.T
	conn *net.UnixConn
}

func dial(dir, name string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, "dev", name), Net: "unixpacket"})
}

func (n node) dial(name string) caller {
	n.t.Helper()
	conn, err := dial(n.dir, name)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return caller{t: n.t, conn: conn}
}

func exchange(conn *net.UnixConn, packet []byte) (wire.Response, error) {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return wire.Response{}, err
	}
	if _, err := conn.Write(packet); err != nil {
		return wire.Response{}, err
	}
	buf := make([]byte, wire.MaxResponse+1)
	k, err := conn.Read(buf)
	if err != nil {
		return wire.Response{}, err
	}
	return wire.DecodeResponse(buf[:k])
}

func request(op wire.Op, text string, args ...uint64) []byte {
	req := wire.Request{Op: op, Text: text}
	copy(req.Args[:], args)
	b, err := req.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

// call wants an outcome and returns the answer.
func (c caller) call(want wire.Status, op wire.Op, text string, args ...uint64) wire.Response {
	c.t.Helper()
	resp, err := exchange(c.conn, request(op, text, args...))
	if err != nil {
		c.t.Fatalf("op %d: %v", op, err)
	}
	if resp.Status != want {
		c.t.Fatalf("op %d %q %d: %v, want %v", op, text, args, resp.Status, want)
	}
	return resp
}

// set does what `gpusim set` does.
func (n node) set(words string) {
	n.t.Helper()
	s, err := control.ParseSettings(strings.Fields(words))
	if err != nil {
		n.t.Fatal(err)
	}
	n.ask(control.Request{Command: control.CmdSet, Set: &s}, nil)
}

func (n node) ask(req control.Request, result any) {
	n.t.Helper()
	if err := control.Call(deadline(n.t), n.dir, req, result); err != nil {
		n.t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// cgroup makes a group beneath the one given ("" for the root) and removes it at the end.
func cgroup(t *testing.T, h hierarchy, parent, name string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	if h.mount == "" {
		t.Skip("needs cgroup v2, which is not mounted here")
	}
	if parent == "" {
		parent = h.mount
		name = fmt.Sprintf("gpusim-test-%d-%s", os.Getpid(), name)
	}
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 6000 { // the kernel lets a group go a little after its last process
			if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("cgroup %q cannot be removed", dir)
	})
	return dir
}

// child is a tenant: this test program in another process.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

// spawn starts a tenant in a cgroup, "" for this process's own.
func (n node) spawn(group string) child {
	n.t.Helper()
	return n.spawnAs(group, &syscall.SysProcAttr{})
}

func (n node) spawnAs(group string, how *syscall.SysProcAttr, env ...string) child {
	n.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), tenantVar+"="+n.dir), env...)
	cmd.Stderr = os.Stderr
	inR, inW, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = inR, outW
	cmd.SysProcAttr = how
	if group != "" {
		fd, err := unix.Open(group, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			n.t.Fatal(err)
		}
		defer unix.Close(fd)
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	c := child{t: n.t, cmd: cmd, in: inW, out: bufio.NewScanner(outR)}
	n.t.Cleanup(func() {
		inW.Close()
		outR.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return c
}

// do sends a line and returns the tenant's answer.
func (c child) do(format string, args ...any) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
	if !c.out.Scan() {
		c.t.Fatalf("the tenant gave no answer to %q: %v", fmt.Sprintf(format, args...), c.out.Err())
	}
	return c.out.Text()
}

// want does a line and wants a status.
func (c child) want(want wire.Status, format string, args ...any) {
	c.t.Helper()
	got := c.do(format, args...)
	if strings.TrimSpace(got) != want.Error() {
		c.t.Fatalf("%s: %s, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

func nest() {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), nestVar+"=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
	}
}

// tenant is what a child does: each line of its input is a call, answered with the status in words.
func tenant(dir string) {
	var conn *net.UnixConn
	var ctx uint64
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		arg := func(i int) uint64 {
			v, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				panic(err)
			}
			return v
		}
		var packet []byte
		switch f[0] {
		case "watch": // minor: connect alone
			c, err := dial(dir, "nvidia"+f[1])
			conn = c
			fmt.Println(wordOf(err))
			continue
		case "work": // nanoseconds
			packet = request(wire.OpLaunch, "", ctx, 1, 1, 0, arg(1))
		case "open": // minor: connect and make a context
			c, err := dial(dir, "nvidia"+f[1])
			if err != nil {
				fmt.Println(err)
				continue
			}
			conn = c
			packet = request(wire.OpCtxCreate, "")
		case "alloc": // bytes
			packet = request(wire.OpAlloc, "", arg(1), ctx, uint64(wire.KindLinear))
		case "limit": // directory, hard
			packet = request(wire.OpSetLimit, f[1], 0, arg(2))
		case "setuid":
			fmt.Println(wordOf(syscall.Setuid(int(arg(1)))))
			continue
		case "chroot":
			fmt.Println(wordOf(syscall.Chroot(f[1])))
			continue
		case "descriptor": // of the connection
			err := descriptor(conn, func(fd int) { fmt.Println(fd) })
			if err != nil {
				fmt.Println(err)
			}
			continue
		case "list", "times": // pid:value of each process that the driver names, with its memory in MiB or its percent
			op, rows, at := wire.OpProcesses, 4, 1
			if f[0] == "times" {
				op, at = wire.OpProcessUtil, 2
			}
			resp, err := exchange(conn, request(op, ""))
			var words []string
			for i := 1; i+at < len(resp.Vals); i += rows {
				value := resp.Vals[i+at]
				if op == wire.OpProcesses {
					value /= mib
				}
				words = append(words, fmt.Sprintf("%d:%d", resp.Vals[i], value))
			}
			fmt.Println(strings.Join(words, " "), wordOf(err))
			continue
		}
		resp, err := exchange(conn, packet)
		if err != nil {
			fmt.Println(err)
			continue
		}
		if f[0] == "open" && len(resp.Vals) > 0 {
			ctx = resp.Vals[0]
		}
		fmt.Println(resp.Status.Error())
	}
}

func descriptor(conn *net.UnixConn, use func(fd int)) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { use(int(fd)) })
}

func wordOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return wire.OK.Error()
}
