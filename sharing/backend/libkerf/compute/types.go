// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// ID names a grant on one GPU.
type ID string

// Mode says what becomes of time that its owner does not use.
type Mode uint8

// The modes.
const (
	// Strict: no grant gets it.
	Strict Mode = iota
	// Fair: other grants get it.
	Fair
)

// Grant is who has a share of a GPU's time.
type Grant struct {
	ID ID
	// Percent is its share of the GPU, at most 100. 0: it has no share, and gets an equal part of what the others
	// leave, at least one percent.
	Percent sharing.Percent
	// Priority is its class: the higher, the earlier it gets idle time.
	Priority int
}

// Seen is what is known of a grant's budget at a step.
type Seen struct {
	// Balance is what the budget holds now; below zero it is a debt.
	Balance time.Duration
	// Charged is what was taken from it since the last step, for so many Launches.
	Charged  time.Duration
	Launches uint64
	// Occupied is the measured time from launches until their end was seen, since the last step. The wait for other
	// programs on the GPU is part of it.
	Occupied time.Duration
	// Requested: the driver was asked about the time since the last question, and answered Sampled. If that covers no
	// time, it did not answer. What was charged meanwhile is compared with it.
	Requested bool
	Sampled   Sampled
}

// TokenUpdate is what to add to a budget.
type TokenUpdate struct {
	ID  ID
	Add time.Duration
	// Spare is the part of Add that belongs to no share, or to an idle grant's.
	Spare time.Duration
	// Ran is the GPU time that was used for what was charged since the last step, as far as is known.
	Ran time.Duration
	// Launch tells the grant's programs whether they may launch until the next step.
	Launch LaunchState
}

// LaunchState tells programs whether they may launch.
type LaunchState uint8

// The turns.
const (
	// Open: as the budget allows.
	Open LaunchState = iota
	// Paused: not now, because launches of another grant are measured.
	Paused
	// Alone: all others hold. The first launch of each kind needs no budget.
	Alone
)

const (
	// MaxStep is the most time that one step counts; what a controller slept through is lost to all alike.
	MaxStep = 200 * time.Millisecond
	// fullAfter is the time after which an unused budget is full.
	fullAfter = 100 * time.Millisecond
	// quietAfter is for how long a grant runs nothing before it is taken to be idle.
	quietAfter = 100 * time.Millisecond
	// maxAhead is the most that launches are taken to wait for each other: charges may be too high.
	maxAhead = 500 * time.Millisecond
	// idlePercent is how much of a GPU's time has to be idle before others get more of a running grant's share.
	idlePercent = 5
	// occupiedOver is the time over which the occupied part is averaged.
	// A grant with crowdedFrom or more wants all it can get.
	occupiedOver = 500 * time.Millisecond
	// mostReported is the most pending time of one report: 32 launches, each pending for 50 ms.
	mostReported = 1600 * time.Millisecond
	crowdedFrom  = 0.85
	// maxLaunches bounds a count that programs can write to.
	maxLaunches = 1 << 30
	// lendSteps is how many steps of extra time a budget may have.
	lendSteps = 2
	hundred   = 100
)
