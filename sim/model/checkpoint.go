// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// ProcessState is how far a process is on the way to the host's memory and back.
type ProcessState uint64

// The states.
const (
	Running ProcessState = 0
	// Stopped: its calls answer Locked.
	Stopped ProcessState = 1
	// Saved: nothing of it is on the GPU, and no list shows it.
	Saved ProcessState = 2
)

// Checkpoint takes one step of a checkpoint with all that process pid has on a GPU, and returns the state that it is in
// then. chain is the process's own: memory that comes back is charged as if it were new. Managed memory that was on the
// GPU comes back when it is touched. Errors: Invalid (no such GPU or step), NotFound (the process has nothing there),
// InUse (that is no step from its state), NotSupported (a client or a server of MPS, or it holds memory together with
// others: cuda-checkpoint names IPC memory among what it does not support), OutOfMemory (to restore;
// nothing has come back), Lost.
func (m *Model) Checkpoint(index, pid int, step wire.Checkpoint, chain Chain) (ProcessState, error) {
	g, err := m.gpu(index)
	if err != nil {
		return 0, err
	}
	c, err := m.holderOf(g, pid)
	if err != nil || step == wire.CheckpointState {
		return c.stateOf(), err
	}
	moves := map[wire.Checkpoint][2]ProcessState{
		wire.CheckpointLock: {Running, Stopped}, wire.CheckpointSave: {Stopped, Saved},
		wire.CheckpointRestore: {Saved, Stopped}, wire.CheckpointUnlock: {Stopped, Running},
	}
	move, ok := moves[step]
	switch {
	case !ok:
		return 0, wire.Invalid
	case c.state != move[0]:
		return c.state, wire.InUse
	case c.mps != nil || c.serves || c.sharing():
		return c.state, wire.NotSupported
	}
	switch step {
	case wire.CheckpointSave:
		c.save()
	case wire.CheckpointRestore:
		err = m.restore(c, chain)
	default:
	}
	if err == nil {
		c.state = move[1]
	}
	return c.state, err
}

func (c *client) stateOf() ProcessState {
	if c == nil {
		return Running
	}
	return c.state
}

// holderOf is a process's hold on a GPU that has something on it.
func (m *Model) holderOf(g *gpu, pid int) (*client, error) {
	for _, c := range m.clients {
		if c.gpu == g && c.is(pid) && c.objects() > 0 && !c.file {
			return c, nil
		}
	}
	return nil, wire.NotFound
}

// save gives all memory back and notes how much it was.
func (c *client) save() {
	for _, h := range c.memory() {
		c.gpu.release(h)
		h.away, h.bytes, h.charged = h.bytes, 0, nil
	}
	for _, a := range c.allocs {
		if a.managed > 0 {
			a.away = 0
		}
	}
}

// restore takes it all again, or nothing.
func (m *Model) restore(c *client, chain Chain) error {
	var back []*usage
	for _, h := range c.memory() {
		taken, err := m.take(c.gpu, h.part, h.away, chain)
		if err != nil {
			for _, b := range back {
				c.gpu.release(b)
				b.away, b.bytes, b.charged = b.bytes, 0, nil
			}
			return err
		}
		taken.ci = h.ci
		*h = taken
		back = append(back, h)
	}
	m.grown(c.gpu)
	return nil
}

// memory is what the client uses, and what is away of it, the largest first.
func (c *client) memory() []*usage {
	all := make([]*usage, 0, len(c.contexts)+len(c.allocs))
	for _, h := range c.contexts {
		all = append(all, h)
	}
	for _, a := range c.allocs {
		all = append(all, &a.usage)
	}
	slices.SortFunc(all, func(a, b *usage) int {
		return cmp.Compare(b.bytes+b.away, a.bytes+a.away)
	})
	return all
}
