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
	// Strict: nobody gets it.
	Strict Mode = iota
	// Fair: it is lent.
	Fair
)

// Grant is who has a share of a GPU's time.
type Grant struct {
	ID ID
	// Percent is its share of the GPU, at most 100. 0: it has none of its own, and gets an equal part of what the
	// others leave, at least one percent.
	Percent sharing.Percent
	// Priority is its class: the higher, the earlier is it lent to.
	Priority int
}

// Seen is what is known of a grant's budget at a step.
type Seen struct {
	// Balance is what the budget holds now; below zero it is a debt.
	Balance time.Duration
	// Charged is what was taken from it since the last step.
	Charged time.Duration
	// Asked: the driver was asked, of the time since it was asked before, and told Told; if that is of no time, it did not tell.
	// What was charged meanwhile is set against it.
	Asked bool
	Told  Told
}

// Refill is what to add to a budget.
type Refill struct {
	ID  ID
	Add time.Duration
	// Lent is the part of Add that belongs to nobody's share, or to an idle grant's.
	Lent time.Duration
	// Ran is the GPU time that was used for what was charged since the last step, as far as is known.
	Ran time.Duration
}

const (
	// MaxStep is the most time that one step counts; what a controller slept through is lost to all alike.
	MaxStep = 200 * time.Millisecond
	// fullAfter is the time after which an unused budget is full.
	fullAfter = 100 * time.Millisecond
	// quietAfter is for how long a grant runs nothing before it is taken to be idle.
	quietAfter = 100 * time.Millisecond
	// maxAhead is the most that launches are taken to wait for each other: charges may be too high.
	maxAhead = 500 * time.Millisecond
	// idlePercent is how much of a GPU's time has to be idle before more of a running owner's share is lent.
	idlePercent = 5
	// lendSteps is how many steps of lent time a budget may hold.
	lendSteps = 2
	hundred   = 100
)
