// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// names are the pids that a process has: one in its own pid namespace and one in each above it, up to the daemon's.
// They are read while it lives, because a driver goes on to list it by them.
type names struct {
	spaces []uint64 // inodes of the namespaces, the process's own first
	pids   []int    // in the same order
	// own keeps the process's own namespace, and with it those above, so that no other gets one of the inodes. It is
	// nil in the daemon's namespace.
	own *os.File
}

// namesOf reads the names of a process that lives.
func namesOf(pid int) (names, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return names{}, fmt.Errorf("pids: %w", err)
	}
	var n names
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			n.pids = parsePIDs(list)
		}
	}
	var daemon unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &daemon); err != nil {
		return names{}, fmt.Errorf("pid namespace: %w", err)
	}
	if n.own, err = os.Open("/proc/" + strconv.Itoa(pid) + "/ns/pid"); err != nil {
		return names{}, fmt.Errorf("pid namespace: %w", err)
	}
	if n.spaces, err = chainTo(daemon.Ino, n.own); err != nil || len(n.spaces) != len(n.pids) {
		return names{}, errors.Join(fmt.Errorf("%d pids in %d namespaces", len(n.pids), len(n.spaces)), err,
			n.own.Close())
	}
	if len(n.spaces) == 1 {
		err, n.own = n.own.Close(), nil
	}
	return n, err
}

// parsePIDs reads a list of pids, the outermost first, and returns them the innermost first.
func parsePIDs(list string) []int {
	var out []int
	for word := range strings.FieldsSeq(list) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		out = append([]int{pid}, out...)
	}
	return out
}

// chainTo are the inodes of a pid namespace and of those above it, up to one.
func chainTo(last uint64, from *os.File) ([]uint64, error) {
	var out []uint64
	fd, err := unix.Dup(int(from.Fd()))
	for err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err != nil {
			break
		}
		if out = append(out, st.Ino); st.Ino == last {
			return out, unix.Close(fd)
		}
		var above int
		above, err = unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		err = errors.Join(err, unix.Close(fd))
		fd = above
	}
	return nil, fmt.Errorf("pid namespaces above: %w", err)
}

func (n names) close() error {
	if n.own == nil {
		return nil
	}
	return n.own.Close()
}

// pidFor is the number of the process in the caller's pid namespace, or 0 if the process is not in it. p may be nil.
func (p *peer) pidFor(caller *peer) int {
	if p == nil {
		return 0
	}
	for i, space := range p.names.spaces {
		if space == caller.names.spaces[0] {
			return p.names.pids[i]
		}
	}
	return 0
}
