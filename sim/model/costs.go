// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Bounds of what a driver takes for itself, in a Change.
const (
	MaxCostTime = time.Minute
	MaxCost     = sharing.GiB
)

// CostChange sets single costs of a driver; nil leaves one as it is.
type CostChange struct {
	Context, List, Exit *time.Duration
	// Stream is for programs that start from now on.
	Stream *sharing.Bytes
	// Unlisted is for contexts that are made from now on.
	Unlisted *sharing.Bytes
}

func (c CostChange) bad() bool {
	for _, d := range []*time.Duration{c.Context, c.List, c.Exit} {
		if d != nil && (*d < 0 || *d > MaxCostTime) {
			return true
		}
	}
	return (c.Stream != nil && *c.Stream > MaxCost) || (c.Unlisted != nil && *c.Unlisted > MaxCost)
}

func (c CostChange) apply(to *machine.Costs) {
	setIf(&to.ContextTime, c.Context)
	setIf(&to.ListTime, c.List)
	setIf(&to.ExitTime, c.Exit)
	setIf(&to.Stream, c.Stream)
	setIf(&to.Unlisted, c.Unlisted)
}

func setIf[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Costs are what the driver of a GPU takes for itself now; none for a GPU that does not exist.
func (m *Model) Costs(index int) machine.Costs {
	if index < 0 || index >= len(m.gpus) {
		return machine.Costs{}
	}
	return m.gpus[index].costs
}

// Answered is when an operation that began at start has its answer at the soonest. A context takes its time, and lists
// of processes wait while the driver begins one.
func (m *Model) Answered(index int, op wire.Op, start time.Duration) time.Duration {
	if index < 0 || index >= len(m.gpus) {
		return start
	}
	g := m.gpus[index]
	switch op {
	case wire.OpCtxCreate:
		return start + g.costs.ContextTime
	case wire.OpProcesses:
		return max(start, g.listsWait)
	default:
		return start
	}
}

// Begun notes that a context of a GPU is being made since now.
func (m *Model) Begun(index int, now time.Duration) {
	if g, err := m.gpu(index); err == nil {
		g.listsWait = max(g.listsWait, now+g.costs.ListTime)
	}
}

// Leave ends the work of a client whose process has ended, and closes it once the driver has taken apart what it held.
// It returns when that is; 0: it is closed.
func (m *Model) Leave(id ClientID, now time.Duration) time.Duration {
	c, ok := m.clients[id]
	switch {
	case !ok:
		return 0
	case c.leaves > 0:
		return c.leaves
	case c.gpu.costs.ExitTime == 0 || c.gpu.lost || len(c.contexts) == 0:
		m.Close(id, now)
		return 0
	}
	c.ended, c.leaves = true, now+c.gpu.costs.ExitTime
	c.stop(m, now)
	m.leaving = append(m.leaving, id)
	return c.leaves
}

// Left closes the clients that have left by now, and returns them.
func (m *Model) Left(now time.Duration) (closed []ClientID) {
	still := m.leaving[:0]
	for _, id := range m.leaving {
		c, open := m.clients[id]
		switch {
		case !open:
		case c.leaves > now:
			still = append(still, id)
		default:
			m.Close(id, now)
			closed = append(closed, id)
		}
	}
	m.leaving = still
	return closed
}
