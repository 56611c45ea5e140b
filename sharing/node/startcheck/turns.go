// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package startcheck

import "time"

// Schedule spreads periodic verifications evenly. A node of 100 grants and 8 GPUs has 800 limits. If the agent read all
// of them at once, a container that starts would wait for the driver.
type Schedule[ID any] struct {
	// Pause is the time until the next turn.
	Pause time.Duration
	every time.Duration
	left  []ID
}

// NewSchedule returns Schedule in which each ID has one turn in about each period.
func NewSchedule[ID any](period time.Duration) *Schedule[ID] {
	return &Schedule[ID]{Pause: period, every: period}
}

// Next returns the ID that has its turn now, and false if there is none. It calls all for the IDs of the next round.
func (t *Schedule[ID]) Next(all func() []ID) (id ID, ok bool) {
	if len(t.left) == 0 {
		t.left = all()
		t.Pause = t.every / time.Duration(max(1, len(t.left)))
	}
	if len(t.left) == 0 {
		return id, false
	}
	id, t.left = t.left[0], t.left[1:]
	return id, true
}
