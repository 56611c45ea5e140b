// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
)

// stat is what Kerf needs of /proc/PID/stat.
type stat struct {
	pid   int
	start uint64 // clock ticks since boot
	ended bool   // a zombie without threads that run
}

// The places of fields of /proc/PID/stat (proc_pid_stat(5)) among those after the command name, which is field 2.
const (
	stateField   = 0 // field 3
	threadsField = 20 - 3
	startField   = 22 - 3
)

// parseStat reads /proc/PID/stat. The command name is the process's own choice and may hold spaces,
// parentheses and newlines, so the fields are counted from after the last ')'.
func parseStat(data []byte) (stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return stat{}, badStat("no command name")
	}
	pid, err := strconv.ParseInt(string(bytes.TrimSpace(data[:open])), 10, 32)
	if err != nil || pid <= 0 {
		return stat{}, badStat("no pid")
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) <= startField {
		return stat{}, badStat("too few fields")
	}
	start, err := strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return stat{}, badStat("no start time")
	}
	// The first thread of a process may end before the others: then the state is Z, and there are other threads.
	state, threads := string(fields[stateField]), string(fields[threadsField])
	ended := (state == "Z" || state == "X") && (threads == "0" || threads == "1")
	return stat{pid: int(pid), start: start, ended: ended}, nil
}

func badStat(why string) error {
	return fmt.Errorf("parse process stat: %s: %w", why, sharing.ErrInvalid)
}
