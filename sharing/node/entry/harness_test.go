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
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
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
		t.Skip("creating cgroups needs root:", sharing.ErrDenied)
	}
	h, err := cgroup.Default()
	if errors.Is(err, sharing.ErrUnsupported) {
		t.Skip("not supported:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, groups: h, base: fmt.Sprintf("kerf-entry-%d-%s", os.Getpid(),
		strings.ReplaceAll(t.Name(), "/", "-"))}
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
	eventually.True(b.t, what, is)
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
