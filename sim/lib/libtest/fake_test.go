// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/wire"
)

const (
	mib      = uint64(1) << 20
	gib      = uint64(1) << 30
	total    = 4 * gib
	reserved = 64 * mib
	ctxCost  = 256 * mib
)

// kernel is the least kernel side that the libraries can run on: GPUs of one kind with memory, contexts and
// processes, and whatever fault a test wants.
type kernel struct {
	dir   string
	major uint64

	mu     sync.Mutex
	gpus   []*gpu
	events chan wire.Response
	answer func(minor int, r wire.Request) (wire.Response, bool)
	conns  map[*net.UnixConn]bool
	done   sync.WaitGroup
	ln     []*net.UnixListener
}

type gpu struct {
	bus   uint64
	used  uint64
	procs map[int]uint64 // bytes by pid
	limit map[string][2]uint64
}

const ctl = -1

// start runs a kernel with GPUs on the given PCI buses, by minor, and the libraries of a driver branch.
func start(t *testing.T, driver string, buses ...uint64) *kernel {
	t.Helper()
	k := &kernel{dir: t.TempDir(), major: 615, events: make(chan wire.Response, 8), conns: map[*net.UnixConn]bool{}}
	switch driver {
	case "r580":
		k.major = 580
	case "r550":
		k.major = 550
	}
	for _, sub := range []string{"lib", "dev"} {
		if err := os.Mkdir(filepath.Join(k.dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, lib := range []string{"libnvidia-ml.so.1", "libcuda.so.1"} {
		if err := os.Symlink(filepath.Join(built, driver, lib), filepath.Join(k.dir, "lib", lib)); err != nil {
			t.Fatal(err)
		}
	}
	k.listen(t, "nvidiactl", ctl)
	for minor, bus := range buses {
		k.change(func() {
			k.gpus = append(k.gpus, &gpu{bus: bus, procs: map[int]uint64{}, limit: map[string][2]uint64{}})
		})
		k.listen(t, fmt.Sprintf("nvidia%d", minor), minor)
	}
	t.Cleanup(k.stop)
	return k
}

// change alters the kernel's state.
func (k *kernel) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// instead lets f answer in the kernel's place where it says so.
func (k *kernel) instead(f func(minor int, r wire.Request) (wire.Response, bool)) {
	k.change(func() { k.answer = f })
}

// dev is the path of a device socket.
func (k *kernel) dev(name string) string { return filepath.Join(k.dir, "dev", name) }

func (k *kernel) listen(t *testing.T, name string, minor int) {
	t.Helper()
	// A long temporary directory does not fit in a socket's address; a short link to it does.
	short, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	link := filepath.Join(short, "d")
	if err := os.Symlink(filepath.Join(k.dir, "dev"), link); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(link, name), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	k.ln = append(k.ln, ln)
	k.done.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			k.mu.Lock()
			k.conns[c] = true
			k.mu.Unlock()
			k.done.Go(func() { k.serve(c, minor) })
		}
	})
}

// drop ends every connection, as a daemon that dies would, and takes new ones still.
func (k *kernel) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
}

func (k *kernel) stop() {
	for _, ln := range k.ln {
		_ = ln.Close()
	}
	k.drop()
	close(k.events)
	k.done.Wait()
}

// client is one connection and what it holds.
type client struct {
	pid  int
	ctx  map[uint64]bool
	mem  map[uint64]memory
	next uint64
}

type memory struct{ bytes, ctx uint64 }

func (k *kernel) serve(c *net.UnixConn, minor int) {
	cl := &client{pid: peer(c), ctx: map[uint64]bool{}, mem: map[uint64]memory{}}
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.conns, c)
		_ = c.Close()
		if minor != ctl {
			g := k.gpus[minor]
			g.used -= g.procs[cl.pid]
			delete(g.procs, cl.pid)
		}
	}()
	buf := make([]byte, wire.MaxRequest)
	for {
		n, err := c.Read(buf)
		if err != nil || n == 0 {
			return
		}
		req, err := wire.DecodeRequest(buf[:n])
		if err != nil {
			return
		}
		out, err := k.reply(cl, minor, req).Encode()
		if err != nil {
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func peer(c *net.UnixConn) int {
	pid := 0
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

func (k *kernel) reply(cl *client, minor int, r wire.Request) wire.Response {
	k.mu.Lock()
	answer := k.answer
	k.mu.Unlock()
	if answer != nil {
		if res, ok := answer(minor, r); ok {
			return res
		}
	}
	if r.Op == wire.OpWaitEvent {
		select {
		case res := <-k.events:
			return res
		case <-time.After(time.Duration(min(r.Args[0], 60_000)) * time.Millisecond): // #nosec G115 -- bounded
			return wire.Response{Status: wire.Timeout}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if minor == ctl {
		return wire.Response{Vals: []uint64{13040, k.major, uint64(len(k.gpus))}, Text: "615.71.09\n13.615.71.09"}
	}
	vals, text, err := k.gpus[minor].do(cl, minor, r)
	var status wire.Status
	if err != nil && !errors.As(err, &status) {
		status = wire.UnknownError
	}
	return wire.Response{Status: status, Vals: vals, Text: text}
}

func (g *gpu) do(cl *client, minor int, r wire.Request) ([]uint64, string, error) {
	m := uint64(minor) // #nosec G115 -- a minor
	switch r.Op {
	case wire.OpGPUInfo:
		return []uint64{m, m, total, reserved, 9, 0, 132, 9, 14, 0, g.bus, 0, 0x233010DE, 0x16C110DE, 0, ctxCost, 18, 7,
				2048, 128 * gib, 0, 0},
			fmt.Sprintf("GPU-%08x-0000-0000-0000-00000000000%d\nFake GPU\n165%d\n00000000:%02X:00.0", g.bus, minor,
				minor, g.bus), nil
	case wire.OpMemory:
		return []uint64{total, reserved, total - reserved - g.used, g.used, 0}, "", nil
	case wire.OpUtilization:
		return []uint64{30, 10}, "", nil
	case wire.OpProcesses:
		if wire.List(r.Args[1]) != wire.ListCompute {
			return []uint64{0}, "", nil
		}
		pids := slices.Sorted(maps.Keys(g.procs))
		vals := []uint64{uint64(len(pids))}
		for _, pid := range pids[min(r.Args[0], uint64(len(pids))):] {
			if len(vals) > 4*3 { // three to a page, so that three processes are more than one page holds
				break
			}
			vals = append(vals, uint64(pid), g.procs[pid], wire.NoInstance, wire.NoInstance) // #nosec G115 -- a pid
		}
		return vals, "", nil
	case wire.OpTopology:
		return []uint64{40, 18}, "", nil
	case wire.OpSetLimit:
		g.limit[r.Text] = [2]uint64{r.Args[0], r.Args[1]}
		return nil, "", nil
	case wire.OpGetLimit:
		l, ok := g.limit[r.Text]
		if !ok {
			return nil, "", wire.NotSupported
		}
		return []uint64{l[0], l[1], g.used}, "", nil
	case wire.OpRecovery:
		return []uint64{4}, "", nil
	case wire.OpCtxCreate:
		id, err := g.take(cl, ctxCost, 0)
		cl.ctx[id] = err == nil
		return []uint64{id}, "", err
	case wire.OpCtxDestroy:
		if !cl.ctx[r.Args[0]] {
			return nil, "", wire.NotFound
		}
		delete(cl.ctx, r.Args[0])
		for at, h := range cl.mem {
			if h.ctx == r.Args[0] || at == r.Args[0] {
				g.give(cl, at)
			}
		}
		return nil, "", nil
	case wire.OpAlloc:
		if r.Args[0]%(2*mib) != 0 || (wire.Kind(r.Args[2]) == wire.KindLinear && !cl.ctx[r.Args[1]]) {
			return nil, "", wire.Invalid
		}
		at, err := g.take(cl, r.Args[0], r.Args[1])
		return []uint64{at}, "", err
	case wire.OpFree:
		if _, ok := cl.mem[r.Args[0]]; !ok || cl.ctx[r.Args[0]] {
			return nil, "", wire.NotFound
		}
		g.give(cl, r.Args[0])
		return nil, "", nil
	case wire.OpLaunch:
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return nil, "", err
		}
		return []uint64{uint64(ts.Nano()) + max(r.Args[4], 1000)}, "", nil // #nosec G115 -- since boot
	case wire.OpCopy:
		return []uint64{0}, "", nil
	}
	return nil, "", wire.NotSupported
}

func (g *gpu) take(cl *client, bytes, ctx uint64) (uint64, error) {
	if bytes > total-reserved-g.used {
		return 0, wire.OutOfMemory
	}
	cl.next += 64 * gib
	at := 1<<46 + g.bus<<40 + cl.next
	cl.mem[at] = memory{bytes, ctx}
	g.used += bytes
	g.procs[cl.pid] += bytes
	return at, nil
}

func (g *gpu) give(cl *client, at uint64) {
	g.used -= cl.mem[at].bytes
	g.procs[cl.pid] -= cl.mem[at].bytes
	delete(cl.mem, at)
}

// used returns what is taken of a GPU.
func (k *kernel) used(minor int) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gpus[minor].used
}
