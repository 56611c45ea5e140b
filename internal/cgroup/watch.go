// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	eventsFile = "cgroup.events"
	procsFile  = "cgroup.procs"
)

// Watcher reports when groups become empty. One inotify instance serves all groups, because the kernel allows a user
// few of them. In addition, or if inotify is unavailable, it checks every group once per poll interval. So it notices
// an empty group late at worst and never misses one.
type Watcher struct {
	poll time.Duration
	log  *slog.Logger
	init func() (int, error) // makes the inotify instance

	mu      sync.Mutex
	inotify *os.File // nil: polling alone, or Run is not in progress
	groups  map[Group]int
	marks   map[int]Group
	due     map[Group]bool // Run looks at these next
	allDue  bool           // or at all
	wake    chan struct{}  // room for one: there is something due
}

// NewWatcher makes a Watcher that polls every poll (at least a millisecond) besides listening.
func NewWatcher(poll time.Duration, log *slog.Logger) *Watcher {
	return &Watcher{
		poll: max(poll, time.Millisecond), log: log, init: newInotify,
		groups: map[Group]int{}, marks: map[int]Group{}, due: map[Group]bool{}, wake: make(chan struct{}, 1),
	}
}

// noMark stands for a group that is only polled.
const noMark int = -1

// Add watches g until it is reported empty once, or Drop. Adding a group twice is harmless. A group that is empty or
// gone already is reported at once.
func (w *Watcher) Add(g Group) {
	w.mu.Lock()
	if _, known := w.groups[g]; !known {
		w.groups[g] = noMark
		w.mark(g)
	}
	w.due[g] = true
	w.mu.Unlock()
	w.lookSoon()
}

func (w *Watcher) lookSoon() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Drop stops watching g. A call of emptied for it that has begun may still be in progress.
func (w *Watcher) Drop(g Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(g)
}

// drop reports whether g was watched. The lock is held.
func (w *Watcher) drop(g Group) bool {
	m, known := w.groups[g]
	if !known {
		return false
	}
	delete(w.groups, g)
	delete(w.due, g)
	if m != noMark {
		delete(w.marks, m)
		if w.inotify != nil {
			removeMark(w.inotify, m)
		}
	}
	return true
}

// mark asks for notice of g's state. The lock is held. On failure the group is polled.
func (w *Watcher) mark(g Group) {
	if w.inotify == nil {
		return
	}
	m, err := addMark(w.inotify, g.Dir)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			w.log.Warn("failed to watch cgroup, will poll it", "cgroup", g.Dir, "error", err)
		}
		return
	}
	w.groups[g], w.marks[m] = m, g
}

// addMark goes through SyscallConn, since File.Fd would make the descriptor blocking.
func addMark(f *os.File, dir string) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return noMark, err
	}
	var m int
	var markErr error
	err = raw.Control(func(fd uintptr) {
		m, markErr = unix.InotifyAddWatch(int(fd), dir+"/"+eventsFile, unix.IN_MODIFY)
	})
	return m, errors.Join(err, markErr)
}

// removeMark fails when the kernel dropped the mark together with the group; then there is nothing to do.
func removeMark(f *os.File, m int) {
	if raw, err := f.SyscallConn(); err == nil {
		//nolint:gosec // the kernel counts them from 1
		_ = raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(m)) })
	}
}

// Run watches until ctx ends and then returns nil. It calls emptied, from its own goroutine, once for each group that
// has no process or is gone (removed, or another in its place). Then it forgets the group. The owner joins Run; one Run
// at a time.
func (w *Watcher) Run(ctx context.Context, emptied func(Group)) error {
	stop, err := w.listen()
	if err != nil {
		w.log.Warn("failed to watch cgroups, will poll them", "error", err)
	} else {
		defer stop()
	}
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	all := true
	for {
		w.look(ctx, w.take(all), emptied)
		all = false
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			all = true
		case <-w.wake:
		}
	}
}

func newInotify() (int, error) {
	return unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
}

// listen starts inotify and the goroutine that reads it; stop ends and joins it.
func (w *Watcher) listen() (stop func(), err error) {
	fd, err := w.init()
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w (%w)", err, sharing.ErrUnavailable)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	w.mu.Lock()
	w.inotify = f
	for g := range w.groups {
		w.mark(g)
	}
	w.mu.Unlock()
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 16<<10)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return // closed by stop; anything else leaves polling
			}
			w.note(buf[:n])
			w.lookSoon()
		}
	})
	return func() {
		w.mu.Lock()
		w.inotify = nil
		clear(w.marks)
		for g := range w.groups {
			w.groups[g] = noMark
		}
		w.mu.Unlock()
		_ = f.Close()
		reader.Wait()
	}, nil
}

// note records which groups changed. If events are lost, as after an overflow of the kernel's queue, any of them may
// have.
func (w *Watcher) note(events []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		mark := int(int32(binary.NativeEndian.Uint32(events))) //nolint:gosec // the kernel counts from -1
		name := uint64(binary.NativeEndian.Uint32(events[unix.SizeofInotifyEvent-4:]))
		if g, known := w.marks[mark]; known {
			w.due[g] = true
		} else if mark == noMark {
			w.allDue = true
		}
		events = events[min(unix.SizeofInotifyEvent+name, uint64(len(events))):]
	}
}

// take returns the groups that are to be looked at, and nothing is due any more.
func (w *Watcher) take(all bool) []Group {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Group
	if all || w.allDue {
		out = slices.Collect(maps.Keys(w.groups))
	} else {
		out = slices.Collect(maps.Keys(w.due))
	}
	clear(w.due)
	w.allDue = false
	return out
}

// look tells of each of the groups that is empty.
func (w *Watcher) look(ctx context.Context, groups []Group, emptied func(Group)) {
	for _, g := range groups {
		if ctx.Err() != nil {
			return
		}
		switch busy, err := g.Populated(); {
		case err == nil && busy:
			continue
		case err != nil && !errors.Is(err, sharing.ErrNotFound) && !errors.Is(err, sharing.ErrStale):
			// Not known is not empty.
			w.log.Warn("failed to read cgroup", "cgroup", g.Dir, "error", err)
			continue
		}
		w.mu.Lock()
		watched := w.drop(g)
		w.mu.Unlock()
		if watched {
			emptied(g)
		}
	}
}
