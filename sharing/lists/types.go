// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"context"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/listing"
)

// Use is one process on one GPU, as the driver lists it. Used means nothing unless Known.
type Use struct {
	PID   int
	Used  sharing.Bytes
	Known bool
	// MPS is true for a client of an MPS server.
	MPS bool
}

// Driver lists the processes that hold memory of a GPU, each pid once. It is comparable. Errors are of the vocabulary
// of package sharing.
type Driver interface {
	Processes(ctx context.Context, gpu sharing.GPURef) ([]Use, error)
}

// Kernel tells of processes.
type Kernel interface {
	// Cgroup is the directory of the cgroup that a process is in, or empty if it is in no visible one. Start is when it
	// started, in clock ticks since boot. The errors sharing.ErrNotFound and sharing.ErrStale mean that there is no
	// such process.
	Cgroup(pid int) (string, error)
	Start(pid int) (uint64, error)
	// Open says whether a process has the device file of the GPU with a minor number open. Errors are those of
	// process.OpenDevices.
	Open(pid, minor int) (bool, error)
	// Now is the time in clock ticks since boot. It is called at once from several goroutines, the others are not.
	Now() uint64
}

// Grant is a grant whose processes run.
type Grant struct {
	Owner listing.Owner
	// Cgroup is the directory of its cgroup; processes beneath belong to it, too.
	Cgroup string
	// Procs lists its processes.
	Procs func() ([]int, error)
	// On says whether it has a part of a GPU.
	On func(sharing.GPURef) bool
}

// has reports whether a process in the cgroup dir is the grant's on a GPU.
func (g Grant) has(gpu sharing.GPURef, dir string) bool {
	return (dir == g.Cgroup || strings.HasPrefix(dir, g.Cgroup+"/")) && g.On(gpu)
}

// Line is an entry, and to whom it belongs.
type Line struct {
	listing.Line
	MPS bool
	// Cgroup is that of a process that runs; empty if it is in none that can be seen.
	Cgroup string
}

// Answer is what a driver said of one GPU. Several who asked may have the same one, and change nothing of it.
type Answer struct {
	GPU  sharing.GPURef
	Uses []Use
	Err  error
	// order says which answer is the older one, and at is when it was given, in clock ticks since boot.
	order, at uint64
}

// Observation is an answer of the driver with what the kernel reported of it afterwards. It has no lines if Err is set.
type Observation struct {
	GPU   sharing.GPURef
	Lines []Line
	Err   error
	// ReadErr is why the open files of a listed process could not be read; nil if they were, or were not needed.
	ReadErr error
}

// Charge is what grants hold together; it is not known if the driver did not answer.
func (l Observation) Charge(grants ...listing.Owner) listing.Charge {
	if l.Err != nil {
		return listing.Charge{}
	}
	return listing.ChargeOf(l.plain(), grants...)
}

// Unattributed is the unattributed memory.
func (l Observation) Unattributed() sharing.Bytes { return listing.SumUnattributed(l.plain()) }

func (l Observation) plain() []listing.Line {
	out := make([]listing.Line, 0, len(l.Lines))
	for _, line := range l.Lines {
		out = append(out, line.Line)
	}
	return out
}
