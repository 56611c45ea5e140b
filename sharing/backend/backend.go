// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package backend puts the memory cap of a grant in force, by one of several backends of different strength,
// and says truthfully which of them this machine can use.
//
// A backend promises that after Apply returned nil every limit it was asked for has been read back and is
// in force, never larger than asked; and that after an error nothing of it is, or the error says what could
// not be undone. It holds no state: what is in force is what Read says.
//
// Not promised: that memory which a process held before the cap was put on counts against it (so caps are put
// on before the process starts), that managed (UVM) memory counts, and anything against a process that may
// leave its cgroup.
package backend

import (
	"context"

	"github.com/kerf-gpu/kerf/sharing"
)

// Limit is the most that the processes of a cgroup may hold of one GPU.
type Limit struct {
	GPU sharing.GPUID
	// Memory is never 0: a process that may hold nothing gets LeastLimit.
	Memory sharing.Bytes
}

// Reading is what is in force.
type Reading struct {
	// Cap is the hard limit; NoCap when there is none.
	Cap sharing.Bytes
	// Used is what the cgroup's processes hold, as the backend counts it.
	Used sharing.Bytes
}

// Grant is what a backend has to know of a grant.
type Grant struct {
	ID string
	// Root is the first of the grants that share its cap; itself where none does.
	Root string
	// UID is the user, and PID the process, that asked for it; PID is 0 if no process did.
	UID uint32
	PID int
	// Contained is true if containers use it.
	Contained bool
	// Active is true while programs may use it, or a grant that shares its cap.
	Active bool
}

// NoCap stands for "no limit" in a Reading.
const NoCap sharing.Bytes = 1<<64 - 1

// LeastLimit is the cap for a GPU that a process shall not use at all: too little for any context, so that
// nothing can run there. It is not 0, because 0 is documented as a soft limit's "none" and not as a hard
// limit, and because some layers take 0 for "not set". It is one large page, so that a driver which rounds
// down to pages does not make 0 of it.
const LeastLimit = 2 * sharing.MiB

// Backend is one way of holding processes to a cap. Each method honours ctx.
type Backend interface {
	// Level is what the backend is worth.
	Level() sharing.Level
	// Probe tells whether the backend works for this GPU.
	Probe(ctx context.Context, gpu sharing.GPU) Support
	// Apply puts the limits on the cgroup at dir and reads each back. On error it takes back all that it set.
	Apply(ctx context.Context, dir string, limits []Limit) error
	// Renew puts limits on a cgroup whose processes may run already, and reads each back. What is in force stays
	// in force on every error: processes that run are never let go because one GPU does not answer.
	Renew(ctx context.Context, dir string, limits []Limit) error
	// Read returns what is in force for dir on gpu.
	Read(ctx context.Context, dir string, gpu sharing.GPUID) (Reading, error)
	// Clear takes the limits off. What is gone already (the cgroup) needs none; a GPU that is lost is told as
	// sharing.ErrLost, after the others have been cleared.
	Clear(ctx context.Context, dir string, gpus []sharing.GPUID) error
}
