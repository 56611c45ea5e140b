// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// The intervals between two samples.
const (
	// Fast is the interval while a grant is close to a cap, or was seen over it once.
	Fast = 20 * time.Millisecond
	// Default is the interval while a watched grant uses a GPU.
	Default = 100 * time.Millisecond
	// Idle is the interval while none does.
	Idle = 250 * time.Millisecond
	// Slowest bounds what the cost of samples can make of an interval.
	Slowest = 2 * time.Second
)

// EvictAgain is how long it is until an eviction is asked for again: the first may have been refused.
const EvictAgain = 10 * time.Second

// ReturnTime is how long memory of an ended process counts as returning if no process of its grant keeps it. Drivers
// free memory a little after the process.
const ReturnTime = 5 * time.Second

// FastPercent is how much of its cap a grant may hold before it is looked at with the interval Fast.
const FastPercent = 90

// costShare bounds the cost of samples: the next interval is at least so many times longer than the cheapest of the
// last samples took. Programs that use nearly all of their cap for days are common. Samples must take at most a
// twentieth of a core.
const costShare = 20

// costSamples is how many samples in a row must be expensive before the interval grows. On driver 580.159 (H200), the
// list of processes is late while a program makes its context.
const costSamples = 4

// Action is what is done about a grant that is over its cap.
type Action uint8

// The actions.
const (
	// Warn tells it, once for each time that it happens.
	Warn Action = iota
	// Kill ends processes until the grant is within its cap.
	Kill
	// Evict ends the owner of the grant as a whole. It repeats every EvictAgain while the grant is over its cap.
	Evict
)

// GrantID names a grant; never empty.
type GrantID string

// Process is one process for good: its pid, and when it started in clock ticks since boot.
type Process struct {
	PID   int
	Start uint64
}

// Use is what one process of a grant holds of a GPU.
type Use struct {
	// Process is without Start if Ended.
	Process
	Grant GrantID
	// Bytes mean nothing unless Known.
	Bytes sharing.Bytes
	Known bool
	// Escaped is true when MPS holds the grant and the process is none of its clients: nothing limits it.
	Escaped bool
	// Ended is true if the process has ended and other processes of the grant keep its memory.
	Ended bool
	// Inferred is true if the process was never seen in the grant: nothing is ended for what it held.
	Inferred bool
}

// Retainer is a process of a grant that keeps the memory of ended processes of the grant.
type Retainer struct {
	Process
	Grant GrantID
}

// GPU is what was seen of one GPU.
type GPU struct {
	ID sharing.GPURef
	// Answered is false if the driver did not answer; the rest is then empty.
	Answered bool
	// Uses are those of grants with a share here, each process once.
	Uses []Use
	// Retainers are those of grants with ended processes that still use memory, each once. They may be missing for a
	// grant within its caps.
	Retainers []Retainer
	// Unclear are grants whose usage here is unknown.
	Unclear []GrantID
	// Unmanaged are processes without a grant here that may be ended, each once.
	Unmanaged []Process
}

// Cap is what one grant may hold of one GPU, and what happens past it.
type Cap struct {
	Grant  GrantID
	GPU    sharing.GPURef
	Memory sharing.Bytes
	Action Action
	// Slack is the excess over the cap that ends no process, for each process that uses the GPU, and Memory in all at
	// most. It is for backends that count a process's context only after it was seen. Such excess is reported.
	Slack sharing.Bytes
}

// Sample is all that was seen at one moment. A GPU or a cap is in it once at most.
type Sample struct {
	GPUs []GPU
	Caps []Cap
	// EndUnmanaged is true if processes without a grant must end.
	EndUnmanaged bool
	// Cost is how long it took to see it.
	Cost time.Duration
}

// Reason says why something is done.
type Reason uint8

// The reasons.
const (
	// OverCap: the grant holds more than it may.
	OverCap Reason = iota
	// Unmanaged: the process has no grant on the GPU that it uses.
	Unmanaged
	// Escaped: the process runs outside of the MPS that enforces its grant.
	Escaped
)

// String returns the reason as metrics and logs have it.
func (r Reason) String() string {
	switch r {
	case Unmanaged:
		return "unmanaged"
	case Escaped:
		return "escaped"
	case OverCap:
	}
	return "over_cap"
}

// Verdict is one thing that is to be done now.
type Verdict struct {
	Action Action
	Reason Reason
	GPU    sharing.GPURef
	// Grant is empty for an unmanaged process.
	Grant GrantID
	// Victim is the process to end; for Warn and Evict it is zero, or the one that has escaped.
	Victim Process
	// Orphaned is true if the victim is to be ended for what it keeps of a process that has ended.
	Orphaned bool
	// Used is the known usage of the grant's processes, or of the one that has escaped, and Cap what they may use. Both
	// are 0 for an unmanaged process.
	Used, Cap sharing.Bytes
	// First is true for the first verdict since the grant was within its cap last.
	First bool
	// Delay is the longest time that the violation can have lasted. It begins with the last sample in which the grant
	// was within its cap, or the unmanaged process was missing. Without such a sample, it begins with the first one
	// that saw it.
	Delay time.Duration
}

// Standing is how one grant stands on one GPU.
type Standing struct {
	Grant GrantID
	GPU   sharing.GPURef
	// Known is false if the grant's usage there is unknown.
	Known bool
	// Used is what it holds there, if that is known.
	Used sharing.Bytes
	// Over is true once two samples in a row have seen it over its cap.
	Over bool
	// Action is what is done about it, where it is over.
	Action Action
}

// Decision is what follows from a sample.
type Decision struct {
	Verdicts []Verdict
	// Standings has one entry for each cap of the sample, in its order.
	Standings []Standing
	// Next is how long to wait for the next sample; 0 when there is nothing to watch.
	Next time.Duration
}
