// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/cgroup/cgrouptest"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

var errCheck = errors.New("rejected by the test")

// bench is a group to come from and a group to enter.
type bench struct {
	t           *testing.T
	groups      cgroup.Hierarchy
	base        string
	from, group cgroup.Group
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: cgroups cannot be made")
	}
	h, err := cgroup.Default()
	if err != nil {
		t.Skip("not supported:", err)
	}
	b := &bench{t: t, groups: h, base: fmt.Sprintf("kerf-entry-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))}
	b.from, b.group = b.create("from/here"), b.create("grant")
	return b
}

func (b *bench) create(rel string) cgroup.Group {
	b.t.Helper()
	g, err := b.groups.Create(path.Join(b.base, rel))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		b.eventually("empty: "+rel, func() bool { busy, err := g.Populated(); return !busy || err != nil })
		if err := errors.Join(g.Remove(), b.removeParents(rel)); err != nil {
			b.t.Error(err)
		}
	})
	return g
}

func (b *bench) removeParents(rel string) error {
	for dir := path.Dir(path.Join(b.base, rel)); dir != "."; dir = path.Dir(dir) {
		if err := os.Remove(filepath.Join(b.groups.Mount, dir)); err != nil {
			return nil //nolint:nilerr // another group is in it, and removes it later
		}
	}
	return nil
}

func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatal("never:", what)
		}
	}
}

// child is a process that answers each line with the same line.
type child struct {
	b   *bench
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
	*process.Handle
}

func (b *bench) child(extra ...*os.File) *child {
	b.t.Helper()
	c := &child{b: b, cmd: exec.Command("cat")}
	c.cmd.ExtraFiles = extra
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(c.cmd.Start(), b.from.Add(c.cmd.Process.Pid)); err != nil {
		b.t.Fatal(err)
	}
	if c.Handle, err = process.Open(c.cmd.Process.Pid); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close(); c.end() })
	return c
}

func (c *child) end() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// runsIn checks where the process is, and that it runs.
func (c *child) runsIn(g cgroup.Group) {
	c.b.t.Helper()
	if dir, err := c.b.groups.OfProcess(c.PID()); err != nil || dir != g.Dir {
		c.b.t.Errorf("process is in %q (%v), want %q", dir, err, g.Dir)
	}
	if _, err := io.WriteString(c.in, "x"); err != nil {
		c.b.t.Error(err)
	}
	if _, err := io.ReadFull(c.out, make([]byte, 1)); err != nil { // blocks for as long as it is frozen
		c.b.t.Error(err)
	}
}

func (b *bench) entry(p *process.Handle, check func([]int) error) Entry {
	return Entry{
		Groups: b.groups, Group: b.group, Process: p, Log: slog.New(slog.DiscardHandler),
		Check: func(_ context.Context, pids []int) error { return check(pids) },
	}
}

func (b *bench) unmarked() {
	b.t.Helper()
	_, marked, err := b.group.Mark(mark)
	freezing, err2 := b.group.Freezing()
	if marked || freezing || err != nil || err2 != nil {
		b.t.Errorf("group: marked %v (%v), freezing %v (%v)", marked, err, freezing, err2)
	}
}

func TestEnter(t *testing.T) {
	b := newBench(t)
	c := b.child()
	var saw []int
	err := b.entry(c.Handle, func(pids []int) error {
		saw = pids
		return b.group.WaitFrozen(t.Context()) // it stands still
	}).Run(t.Context())
	if err != nil || len(saw) != 1 || saw[0] != c.PID() {
		t.Errorf("run: %v, checked %v", err, saw)
	}
	c.runsIn(b.group)
	b.unmarked()
}

// Whatever step fails, the process goes on where it was. Only what fails after the thaw finds it in the group.
func TestRejected(t *testing.T) {
	for _, point := range Steps() {
		t.Run(point, func(t *testing.T) {
			b := newBench(t)
			c := b.child()
			e := b.entry(c.Handle, func([]int) error { return nil })
			e.After = func(s string) error {
				if s == point {
					return errCheck
				}
				return nil
			}
			if err := e.Run(t.Context()); !errors.Is(err, errCheck) {
				t.Errorf("run: %v", err)
			}
			if point == thaw.String() {
				c.runsIn(b.group)
				b.unmarked()
			} else {
				c.runsIn(b.from)
			}
		})
	}
	t.Run("by the check", func(t *testing.T) {
		b := newBench(t)
		c := b.child()
		if err := b.entry(c.Handle, func([]int) error { return errCheck }).Run(t.Context()); !errors.Is(err, errCheck) {
			t.Errorf("run: %v", err)
		}
		c.runsIn(b.from)
	})
	t.Run("it has ended", func(t *testing.T) {
		b := newBench(t)
		c := b.child()
		c.end()
		if err := b.entry(c.Handle, func([]int) error { return nil }).Run(t.Context()); err == nil {
			t.Error("a process that has ended was let in")
		}
	})
	t.Run("it is killed while it stands still", func(t *testing.T) {
		b := newBench(t)
		c := b.child()
		e := b.entry(c.Handle, func([]int) error { return nil })
		e.After = func(s string) error {
			if s == stop.String() {
				c.end()
			}
			return nil
		}
		if err := e.Run(t.Context()); !errors.Is(err, sharing.ErrStale) {
			t.Errorf("run: %v", err)
		}
	})
	t.Run("its group is removed meanwhile", func(t *testing.T) {
		b := newBench(t)
		c := b.child()
		err := b.entry(c.Handle, func([]int) error { return errors.Join(errCheck, b.from.Remove()) }).Run(t.Context())
		if !errors.Is(err, errCheck) {
			t.Errorf("run: %v", err)
		}
		above, err := b.groups.Open(filepath.Dir(b.from.Dir), 0)
		if err != nil {
			t.Fatal(err)
		}
		c.runsIn(above)
	})
}

// An agent that dies anywhere leaves no process that stands still once the next agent has come.
func TestRecover(t *testing.T) {
	for _, point := range Steps() {
		t.Run(point, func(t *testing.T) {
			b := newBench(t)
			c := b.child()
			b.die(c, point)
			undone, err := Recover(b.groups, b.group, slog.New(slog.DiscardHandler))
			if want := point != thaw.String(); undone != want || err != nil {
				t.Errorf("recover: %v, %v; want %v", undone, err, want)
			}
			b.unmarked()
			if point == thaw.String() {
				c.runsIn(b.group)
			} else {
				c.runsIn(b.from)
			}
			if again, err := Recover(b.groups, b.group, slog.New(slog.DiscardHandler)); again || err != nil {
				t.Errorf("a second time: %v, %v", again, err)
			}
		})
	}
}

// die runs an entry and ends it after a step, without anything that would follow.
func (b *bench) die(c *child, point string) {
	b.t.Helper()
	e := b.entry(c.Handle, func([]int) error { return nil })
	e.After = func(s string) error {
		if s == point {
			runtime.Goexit()
		}
		return nil
	}
	done := make(chan error)
	go func() {
		defer close(done)
		done <- e.Run(b.t.Context())
	}()
	if err, ended := <-done; ended {
		b.t.Errorf("the entry came to its end: %v", err)
	}
}

// A group that others froze is theirs.
func TestRecoverLeavesOthersFrozen(t *testing.T) {
	b := newBench(t)
	c := b.child()
	if err := errors.Join(b.group.Add(c.PID()), b.group.Freeze()); err != nil {
		t.Fatal(err)
	}
	if undone, err := Recover(b.groups, b.group, slog.New(slog.DiscardHandler)); undone || err != nil {
		t.Errorf("recover: %v, %v", undone, err)
	}
	if freezing, err := b.group.Freezing(); !freezing || err != nil {
		t.Errorf("freezing %v, %v", freezing, err)
	}
	if err := b.group.Thaw(); err != nil {
		t.Fatal(err)
	}
	c.runsIn(b.group)
}

// A mark that cannot be read is no reason to leave a process frozen.
func TestRecoverWithABadMark(t *testing.T) {
	b := newBench(t)
	c := b.child()
	if err := errors.Join(b.group.SetMark(mark, "nonsense"), b.group.Freeze(), b.group.Add(c.PID())); err != nil {
		t.Fatal(err)
	}
	if undone, err := Recover(b.groups, b.group, slog.New(slog.DiscardHandler)); undone || !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("recover: %v, %v", undone, err)
	}
	b.unmarked()
	c.runsIn(b.group)
}

// A thread that the kernel cannot stop is told of after a while, and the process goes on.
func TestAThreadThatDoesNotStop(t *testing.T) {
	b := newBench(t)
	c := exec.Command("cat", cgrouptest.Unanswered(t))
	if err := errors.Join(c.Start(), b.from.Add(c.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	b.eventually("it waits for the file server", func() bool { return cgrouptest.Waits(t, c.Process.Pid) })
	p, err := process.Open(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = b.entry(p, func([]int) error { t.Error("it was checked"); return nil }).Run(t.Context())
	if !errors.Is(err, sharing.ErrUnavailable) || !strings.Contains(err.Error(), "waits in the kernel") {
		t.Errorf("run: %v", err)
	}
	if dir, err := b.groups.OfProcess(p.PID()); err != nil || dir != b.from.Dir {
		t.Errorf("process is in %q, %v", dir, err)
	}
}

// A process that forks all the time enters, or is rejected, with the children that it made on the way.
func TestAProcessThatForks(t *testing.T) {
	for _, rejects := range []bool{false, true} {
		t.Run(fmt.Sprint("rejects ", rejects), func(t *testing.T) {
			b := newBench(t)
			c := exec.Command("sh", "-c", "while :; do true & done")
			if err := errors.Join(c.Start(), b.from.Add(c.Process.Pid)); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
			p, err := process.Open(c.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			err = b.entry(p, func([]int) error {
				if rejects {
					return errCheck
				}
				return nil
			}).Run(t.Context())
			if rejects != (err != nil) {
				t.Fatalf("run: %v", err)
			}
			busy, err := b.group.Populated()
			if busy == rejects || err != nil {
				t.Errorf("populated %v, %v", busy, err)
			}
		})
	}
}

// What a process has open is found: by a descriptor of its own, and by one that it inherited.
func TestFind(t *testing.T) {
	b := newBench(t)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev/nvidia-caps"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvidia0", "nvidia17", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "nvidia-fs0", "null"} {
		if err := os.WriteFile(filepath.Join(root, "dev", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := DeviceFiles(root, root, t.TempDir())
	if err != nil || len(files) != 5 {
		t.Fatalf("device files %v, %v", files, err)
	}
	for name, held := range map[string]bool{"nvidia17": true, "nvidiactl": true, "nvidia-caps/nvidia-cap1": true, "null": false} {
		f, err := os.OpenFile(filepath.Join(root, "dev", name), unix.O_PATH, 0) // as a library opens a socket
		if err != nil {
			t.Fatal(err)
		}
		c := b.child(f)
		_ = f.Close()
		found, err := Find(t.Context(), []int{c.PID()}, files, map[int][]int{c.PID(): {3}})
		if err != nil || len(found) != 1 || (len(found[0].Files) == 1) != held || found[0].GPUs[0] != 3 {
			t.Errorf("%s: found %+v, %v", name, found, err)
		}
		if err := Judge(found); !errors.Is(err, sharing.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Find(t.Context(), []int{1 << 30}, files, nil); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no process: %v", err)
	}
}
