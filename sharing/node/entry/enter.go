// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// mark is the name of the group's mark; its text is where the process came from.
	mark = "entry"
	// stopTime is how long a process may take to stop. Most take microseconds. A thread that waits for a file server
	// takes as long as the server.
	stopTime = 2 * time.Second
	// returns is how often the group's processes are listed and returned: a thread that had not stopped may have
	// forked.
	returns = 3
)

// Entry is one process that is to enter one group. The group is empty and belongs to the caller alone.
type Entry struct {
	Groups  cgroup.Hierarchy
	Group   cgroup.Group
	Process *process.Handle
	// Check is called while all processes of the group stand still; pids has them all. If it returns an error, the
	// process is rejected.
	Check func(ctx context.Context, pids []int) error
	Log   *slog.Logger
	// After is called after each successful step of Steps; nil for no call. An error fails the step, but after the
	// thaw, when the process runs, Run only returns it. Crash tests end the agent here.
	After func(step string) error
}

// Steps are the names that After is called with.
func Steps() []string {
	return []string{freeze.String(), move.String(), stop.String(), check.String(), thaw.String()}
}

// Run moves the process. Without an error it is in the group, was checked, and runs. With an error it runs too. It is
// where it came from, or in the group if the kernel does not let it go back; see Group.Populated.
//
// Errors: those of Check; sharing.ErrUnavailable if a thread does not stop in time. It is sharing.ErrStale if the
// process ended or another moved it, and sharing.ErrDenied if its cgroup is outside of what the agent sees.
func (e Entry) Run(ctx context.Context) error {
	from, err := e.Groups.OriginOf(e.Process.PID())
	if err != nil {
		return err
	}
	var errs []error
	for s := freeze; !s.final(); {
		err := e.do(ctx, s, from)
		if err != nil {
			errs = append(errs, err)
		}
		s = next(s, err == nil)
	}
	return errors.Join(errs...)
}

func (e Entry) do(ctx context.Context, s step, from cgroup.Origin) error {
	var err error
	switch s {
	case freeze:
		err = errors.Join(e.Group.SetMark(mark, from.String()), e.Group.Freeze())
	case move:
		err = e.move()
	case stop:
		err = e.stop(ctx)
	case check:
		err = e.check(ctx)
	case thaw:
		return e.Group.Thaw()
	case unmark: // the process runs, so what fails after the thaw does not take it back
		return errors.Join(e.after(thaw), e.Group.ClearMark(mark))
	case giveBack:
		return giveAllBack(e.Groups, e.Group, from, e.Log)
	case letGo:
		return e.Group.Thaw()
	case entered, rejected, kept:
	}
	if err != nil {
		return err
	}
	return e.after(s)
}

func (e Entry) after(s step) error {
	if e.After == nil {
		return nil
	}
	return e.After(s.String())
}

// move makes sure that it was this process. Its pidfd was opened before, so a process that still lives after the write
// is the one that was moved.
func (e Entry) move() error {
	pid := e.Process.PID()
	if err := e.Group.Add(pid); err != nil {
		return err
	}
	if !e.Process.Alive() {
		return fmt.Errorf("process %d ended while it was being moved: %w", pid, sharing.ErrStale)
	}
	dir, err := e.Groups.OfProcess(pid)
	if err != nil {
		return err
	}
	if dir != e.Group.Dir {
		return fmt.Errorf("process %d is in %q after it was moved to %q: %w", pid, dir, e.Group.Dir, sharing.ErrStale)
	}
	return nil
}

func (e Entry) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := e.Group.WaitFrozen(ctx); err != nil {
		return fmt.Errorf("process %d cannot be stopped for a check: one of its threads waits in the kernel (for "+
			"example for a network file system); try again when it has ended: %w", e.Process.PID(), err)
	}
	return nil
}

func (e Entry) check(ctx context.Context) error {
	pids, err := e.Group.Procs()
	if err != nil {
		return err
	}
	if !e.Process.Alive() || !slices.Contains(pids, e.Process.PID()) {
		return fmt.Errorf("process %d ended, or left cgroup %q, while it was being checked: %w", e.Process.PID(),
			e.Group.Dir, sharing.ErrStale)
	}
	return e.Check(ctx, pids)
}

// giveAllBack returns every process of the group, and thaws the empty group. One that was forked on the way goes with
// its parent.
func giveAllBack(h cgroup.Hierarchy, g cgroup.Group, from cgroup.Origin, log *slog.Logger) error {
	var errs []error
	for range returns {
		pids, err := g.Procs()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			to, err := h.Return(pid, from)
			if err != nil {
				errs = append(errs, err)
			} else if to != from.Path {
				log.Warn("returned process to a group above its own, which is gone or not writable", "pid", pid, "own",
					"/"+from.Path, "cgroup", "/"+to)
			}
		}
	}
	if busy, err := g.Populated(); err != nil || busy {
		return errors.Join(append(errs, err, fmt.Errorf("a process cannot leave cgroup %q: %w", g.Dir,
			sharing.ErrUnavailable))...)
	}
	return g.Thaw()
}

// Recover deals with a group that an agent which died may have left in the middle of an entry. Afterwards no process in
// it is frozen by an entry. It reports whether it returned processes; the group is then empty. With an error, the
// processes run, and some of them are in the group.
func Recover(h cgroup.Hierarchy, g cgroup.Group, log *slog.Logger) (undone bool, err error) {
	text, marked, err := g.Mark(mark)
	if err != nil {
		return false, err
	}
	freezing, err := g.Freezing()
	if err != nil {
		return false, err
	}
	switch remedyFor(marked, freezing) {
	case leave:
		return false, nil
	case finish:
		return false, g.ClearMark(mark)
	case undo:
	}
	from, err := cgroup.ParseOrigin(text)
	if err == nil {
		err = giveAllBack(h, g, from, log)
	}
	return err == nil, errors.Join(err, g.Thaw(), g.ClearMark(mark))
}
