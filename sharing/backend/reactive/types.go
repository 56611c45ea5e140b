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

// ReturnTime is how long what a process held that has ended, and that nobody in its grant keeps, is taken to be on its way
// back: drivers free memory a little after the process.
const ReturnTime = 5 * time.Second

// NearPercent is how much of its cap a grant may hold before it is looked at with the interval Fast.
const NearPercent = 90

// costShare is how many times longer than the last sample took the next interval is at least: programs that hold
// nearly all of their cap for days are common, and watching them must not take more than a twentieth of a core.
const costShare = 20

// Action is what is done about a grant that is over its cap.
type Action uint8

// The actions.
const (
	// Warn tells it, once for each time that it happens.
	Warn Action = iota
	// Kill ends processes until the grant is within its cap.
	Kill
	// Evict has whoever the grant belongs to ended as a whole. It is asked for again every EvictAgain while the grant is
	// over its cap.
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
	// Ended is true if the process has ended and others keep what it held: the grant's keepers, as far as they are its own.
	Ended bool
	// Inferred is true if the process was never seen in the grant: nothing is ended for what it held.
	Inferred bool
}

// Keeper is a process of a grant that keeps what others of the grant held that have ended.
type Keeper struct {
	Process
	Grant GrantID
}

// GPU is what was seen of one GPU.
type GPU struct {
	ID sharing.GPURef
	// Told is false when the driver did not answer; the rest is then empty.
	Told bool
	// Uses are those of grants with a share here, each process once.
	Uses []Use
	// Keepers are those of grants with uses that have ended, each once. They may be missing for a grant within its caps.
	Keepers []Keeper
	// Unclear are grants of which it cannot be told what they hold here.
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
	// Slack is how much over the cap nothing is ended for, for each process that uses the GPU, and Memory in all at most:
	// where something else holds the grant and counts a process's context only after it was seen. Such is told.
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
	// Escaped: the process runs beside the MPS that holds its grant.
	Escaped
)

// String returns the reason as metrics and logs have it.
func (r Reason) String() string {
	switch r {
	case Unmanaged:
		return "stranger"
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
	// Keeps is true if the victim is to be ended for what it keeps of a process that has ended.
	Keeps bool
	// Held is what the grant's processes hold, or the one that has escaped, as far as that is known, and Cap what they may;
	// both 0 for an unmanaged process.
	Held, Cap sharing.Bytes
	// First is true for the first verdict since the grant was within its cap last.
	First bool
	// Delay is the time since the last sample in which the grant was within its cap, or the unmanaged process not there;
	// where there is none, since the first one that saw it. It is thus the longest that it can have lasted.
	Delay time.Duration
}

// Standing is how one grant stands on one GPU.
type Standing struct {
	Grant GrantID
	GPU   sharing.GPURef
	// Known is false when it could not be told what the grant holds there.
	Known bool
	// Held is what it holds there, if that is known.
	Held sharing.Bytes
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
