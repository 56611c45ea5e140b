// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package listing

import "github.com/kerf-gpu/kerf/sharing"

// Owner is whom memory is charged to: a grant. Empty stands for no grant.
type Owner string

// Process is one process for good: its pid, and when it started in clock ticks since boot.
type Process struct {
	PID   int
	Start uint64
}

// Entry is one entry of a driver's list. It is the GPU memory of all processes that ever had this pid, and whose files
// are open. Bytes mean nothing unless Known.
type Entry struct {
	PID   int
	Bytes sharing.Bytes
	Known bool
}

// State says whether a pid is a process's.
type State uint8

// The states.
const (
	// Unread: the kernel does not tell.
	Unread State = iota
	// NoProcess: no process has the pid.
	NoProcess
	// Alive: a process has it.
	Alive
)

// Fact is what the kernel tells of the process that has a pid now. Start and Owner mean nothing unless State is Alive.
type Fact struct {
	State State
	Start uint64
	// Owner is the grant whose cgroup the process is in.
	Owner Owner
}

// Answer is a yes or no that may be missing.
type Answer uint8

// The answers.
const (
	NotKnown Answer = iota
	No
	Yes
)

// Kernel answers about processes, after the driver made its list. It is asked only what a check needs.
type Kernel interface {
	Process(pid int) Fact
	// Open says whether the process that has the pid now has the GPU's device file open.
	Open(pid int) Answer
	// Retainers are the grants in whose cgroups an unlisted process has the GPU's device file open, each once. If a
	// process could not be read, known is false.
	Retainers() (grants []Owner, known bool)
}

// Kind says what is known of an entry.
type Kind uint8

// The kinds.
const (
	// Unclear: its owner cannot be determined now.
	Unclear Kind = iota
	// Running: it belongs to Line.Process, which runs.
	Running
	// Ended: its process has ended, or has closed its files, and it is charged to Line.Owner.
	Ended
	// Unattributed: its process has ended, and was never seen.
	Unattributed
)

// Line is an entry and to whom it belongs.
type Line struct {
	Entry
	Kind Kind
	// Process is set if Kind is Running.
	Process Process
	// Owner is the grant that is charged. If Kind is Running, it may be empty: an unmanaged process.
	Owner Owner
	// Inferred says that the process was never seen in Owner's cgroup: Owner is the only grant that could have made the
	// memory.
	Inferred bool
	// Suspects are the grants that it may belong to if Kind is Unclear. None means that it may be anyone's.
	Suspects []Owner
}
