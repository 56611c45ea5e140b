// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup/cgrouptest"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

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
	if undone, err := Recover(b.groups, b.group, slog.New(slog.DiscardHandler)); undone ||
		!errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("recover: %v, %v", undone, err)
	}
	b.unmarked()
	c.runsIn(b.group)
}

// A thread that the kernel cannot stop is reported after a while, and the process goes on.
func TestAThreadThatDoesNotStop(t *testing.T) {
	b := newBench(t)
	c := exec.Command("cat", cgrouptest.Unanswered(t))
	if err := errors.Join(c.Start(), b.from.Add(c.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	b.eventually("it waits for the file server", func() bool { return cgrouptest.IsWaiting(t, c.Process.Pid) })
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
