// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/sharing"
)

// Key names a control daemon.
type Key struct {
	GPU sharing.GPUID
	// Domain is who trusts each other: a namespace, a user id, or all of a pool. It is any text but the empty one, and
	// is either of processes or of containers.
	Domain string
	// Contained is true if its clients are in containers, which have a private /dev/shm. The daemon then has a separate
	// one too, which they mount.
	Contained bool
}

// Terms are what one attachment may have in each of its processes.
type Terms struct {
	// Memory is the limit, at least 1 MiB.
	Memory sharing.Bytes
	// Percent is the share of the threads; 0: no limit of it.
	Percent sharing.Percent
}

// Modes reads and sets compute modes. Errors are package sharing's; sharing.ErrUnsupported is a driver that cannot.
type Modes interface {
	ComputeMode(ctx context.Context, gpu sharing.GPUID) (sharing.ComputeMode, error)
	SetComputeMode(ctx context.Context, gpu sharing.GPUID, mode sharing.ComputeMode) error
}

// ModeRule says what becomes of the compute mode of a GPU with domains.
type ModeRule int

// The rules.
const (
	// ManageMode: EXCLUSIVE_PROCESS for one domain, DEFAULT for several, and what it was before for none.
	ManageMode ModeRule = iota
	// ModeUnchanged leaves it as it is. A mode that was changed before is managed until the GPU's domains have ended.
	ModeUnchanged
	// ReadMode sets nothing, not even what it was before a change.
	ReadMode
)

// Options are what a Supervisor works with.
type Options struct {
	// Dir holds all that daemons have, see place. Absolute, of this agent alone, and reachable for clients of any user.
	Dir     string
	Program mps.Program
	Modes   Modes
	// Rule says what becomes of a GPU's compute mode; nil: ManageMode.
	Rule func(gpu sharing.GPUID) ModeRule
	// BootID is the kernel's: pids of another boot mean nothing.
	BootID string
	// Owner is the user whose processes alone are in a domain; false if several users may be. That user's server is
	// started before there are clients, and root's in a domain of several users. A client of another user gets a new
	// server when this one has no clients. Nil: false.
	Owner func(domain string) (uid uint32, alone bool)
	// MoveDaemon puts a daemon where the end of this program does not reach it, such as a separate cgroup; nil:
	// nothing.
	MoveDaemon func(pid int) error
	// Again is called each time that a daemon which died or hung is to be started again, whether it then comes up or
	// not. It may be nil, and must return at once.
	Again func(Key)
	Log   *slog.Logger
	// StartTime bounds the time from the start of a daemon to its active server. The daemon has a fifth of it to list
	// the server. Zero: 10 s.
	StartTime time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Condition is how a daemon is.
type Condition int

// The conditions.
const (
	// Down: it does not run, or does not answer; it is started again.
	Down Condition = iota
	// Ready: it answers, and a server lives.
	Ready
)

// String returns the condition as status shows it.
func (c Condition) String() string {
	if c == Ready {
		return "ready"
	}
	return "down"
}

// State is one daemon's.
type State struct {
	Key       Key
	Condition Condition
	// Reason is why it is not ready.
	Reason string
	// Pipe is the directory that only its clients get.
	Pipe string
	// Daemon and Servers are its processes; 0 and none while it is down.
	Daemon  int
	Servers []int
	// Attachments is how many use it, Restarts how often it was started again.
	Attachments, Restarts int
	// Exclusive: the GPU takes no process but this domain's server, so that one without its pipe directory fails. With
	// ModeUnchanged and ReadMode, the GPU has that mode already.
	Exclusive bool
}
