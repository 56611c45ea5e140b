// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/cgroup/cgrouptest"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func frozenGroup(t *testing.T) Group {
	t.Helper()
	h, base := scratch(t)
	g, err := h.Create(base + "/grant")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Thaw(); err != nil {
			t.Error(err)
		}
		emptied(t, g)
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := g.Freeze(); err != nil {
		t.Fatal(err)
	}
	return g
}

// A process that runs without a pause stops when it enters a frozen group, and goes on when the group is thawed.
func TestFreezeStopsWhoEnters(t *testing.T) {
	g := frozenGroup(t)
	if frozen, err := g.Freezing(); !frozen || err != nil {
		t.Errorf("an empty group after Freeze: %v, %v", frozen, err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := exec.Command("sh", "-c", "while :; do echo; done")
	c.Stdout = in
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	if err := g.Add(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitFrozen(t.Context()); err != nil {
		t.Fatal(err)
	}
	drain(t, out)
	if n := drain(t, out); n != 0 {
		t.Errorf("a frozen process wrote %d bytes", n)
	}
	if err := g.Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // blocks until it writes again
		t.Errorf("after Thaw: %v", err)
	}
	if frozen, err := g.Freezing(); frozen || err != nil {
		t.Errorf("after Thaw: %v, %v", frozen, err)
	}
}

// drain reads what is in the pipe now.
func drain(t *testing.T, f *os.File) (n int) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetNonblock(int(fd), true)
		for {
			m, err := unix.Read(int(fd), buf)
			if err != nil || m <= 0 {
				return
			}
			n += m
		}
	})
	return n
}

// What a debugger or a signal has stopped counts as frozen: it runs no instruction of its program either way.
func TestStoppedCountsAsFrozen(t *testing.T) {
	t.Run("by a signal", func(t *testing.T) {
		g := frozenGroup(t)
		pid, _ := sleeper(t)
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		wantFrozen(t, g, pid)
	})
	t.Run("by a debugger", func(t *testing.T) {
		g := frozenGroup(t)
		pid, _ := sleeper(t)
		runtime.LockOSThread() // a debugger is a thread
		defer runtime.UnlockOSThread()
		if err := unix.PtraceAttach(pid); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.PtraceDetach(pid) }()
		if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
			t.Fatal(err)
		}
		wantFrozen(t, g, pid)
	})
}

func wantFrozen(t *testing.T, g Group, pid int) {
	t.Helper()
	if err := errors.Join(g.Add(pid), g.WaitFrozen(t.Context())); err != nil {
		t.Error(err)
	}
}

// A thread that waits for a file server cannot be frozen. That is said, and the thread goes on unharmed.
func TestWaitFrozenGivesUp(t *testing.T) {
	g := frozenGroup(t)
	origin, err := g.hierarchy().OriginOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	file := cgrouptest.Unanswered(t)
	c := exec.Command("cat", file)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the program waits", func() bool { return cgrouptest.IsWaiting(t, c.Process.Pid) })
	if err := g.Add(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.WaitFrozen(ctx); !errors.Is(err, sharing.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	if to, err := g.hierarchy().Return(c.Process.Pid, origin); err != nil || to != origin.Path {
		t.Errorf("returned to %q, %v", to, err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
}

// A process goes back to where it was, and where that is gone to the nearest group above.
func TestReturn(t *testing.T) {
	h, base := scratch(t)
	from, err := h.Create(base + "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	grant, err := h.Create(base + "/grant")
	if err != nil {
		t.Fatal(err)
	}
	move := func(t *testing.T, pid int) Origin {
		t.Helper()
		if err := from.Add(pid); err != nil {
			t.Fatal(err)
		}
		o, err := h.OriginOf(pid)
		if err != nil || o.Path != base+"/a/b" || o.Inode != from.Inode {
			t.Fatalf("origin %+v, %v", o, err)
		}
		if err := grant.Add(pid); err != nil {
			t.Fatal(err)
		}
		return o
	}
	want := func(t *testing.T, pid int, o Origin, rel string) {
		t.Helper()
		to, err := h.Return(pid, o)
		dir, errOf := h.OfProcess(pid)
		if err != nil || errOf != nil || to != rel || dir != path.Join(h.Mount, rel) {
			t.Errorf("returned to %q (%v), is in %q (%v); want %q", to, err, dir, errOf, rel)
		}
	}
	pid, end := sleeper(t)
	want(t, pid, move(t, pid), base+"/a/b")
	o := move(t, pid)
	if err := from.Remove(); err != nil {
		t.Fatal(err)
	}
	want(t, pid, o, base+"/a")
	if from, err = h.Create(base + "/a/b"); err != nil { // another of that name
		t.Fatal(err)
	}
	if err := grant.Add(pid); err != nil {
		t.Fatal(err)
	}
	want(t, pid, o, base+"/a")
	want(t, pid, Origin{Inode: inodeAt(t, h)}, "")
	end()
	if _, err := h.Return(noProcess, o); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

func TestParseFrozen(t *testing.T) {
	for text, want := range map[string]bool{"populated 1\nfrozen 1\n": true, "frozen 0\n": false} {
		if got, err := parseFrozen([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "populated 1\n", "frozen\n", "frozen 2\n"} {
		if _, err := parseFrozen([]byte(bad)); !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
