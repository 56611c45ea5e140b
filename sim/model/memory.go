// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// take charges bytes on a part of the GPU to a process in chain, or returns OutOfMemory with nothing changed.
func (m *Model) take(g *gpu, part int, bytes sharing.Bytes, chain Chain) (usage, error) {
	room := g.capacity[part].SubFloor(g.used[part])
	if bytes > room && bytes > room+m.evictable(g, part, nil) { // both are at most the capacity
		return usage{}, wire.OutOfMemory
	}
	h := usage{bytes: bytes, part: part}
	for _, group := range chain {
		l, limited := g.limits[group.ID]
		if !limited {
			continue
		}
		if bytes > l.hard.SubFloor(l.used) {
			return usage{}, wire.OutOfMemory
		}
		h.charged = append(h.charged, l)
		if m.machine.Memacct == machine.Misc {
			break
		}
	}
	m.evict(g, part, bytes, nil)
	g.used[part] += bytes
	for _, l := range h.charged {
		l.used += bytes // at most the GPU's memory: cannot wrap
	}
	return h, nil
}

// grown looks whether more is held now than ever was. What an MPS server holds for itself is no program's.
func (m *Model) grown(g *gpu) {
	held := g.inUse().SubFloor(g.unlisted)
	if held <= g.peak {
		return
	}
	for _, c := range m.clients {
		if c.gpu == g && c.serves {
			held = held.SubFloor(c.pinned)
		}
	}
	g.peak = max(g.peak, held)
}

// takeUnlisted takes what the driver needs in addition to a context, or returns OutOfMemory with nothing changed.
func (m *Model) takeUnlisted(g *gpu, h *usage) error {
	bytes := g.costs.Unlisted
	m.evict(g, h.part, bytes, nil)
	if bytes > g.capacity[h.part].SubFloor(g.used[h.part]) {
		return wire.OutOfMemory
	}
	h.unlisted = bytes
	g.used[h.part] += bytes
	g.unlisted += bytes
	return nil
}

// release undoes take and takeUnlisted.
func (g *gpu) release(h *usage) {
	g.used[h.part] = g.used[h.part].SubFloor(h.bytes).SubFloor(h.unlisted)
	g.unlisted = g.unlisted.SubFloor(h.unlisted)
	h.unlisted = 0
	for _, l := range h.charged {
		l.used = l.used.SubFloor(h.bytes)
	}
}

// CreateContext makes a context for a process in chain, which costs memory. instance is the MIG device
// to run on, 0 for the first or, without MIG mode, for the GPU. Errors: OutOfMemory, NotFound (client, or no
// such instance), InUse (the compute mode), Lost.
func (m *Model) CreateContext(id ClientID, instance uint64, chain Chain) (uint64, error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	if err := m.admits(c); err != nil {
		return 0, err
	}
	return m.createContext(c, instance, chain)
}

// CreateGraphics is CreateContext for a context of a graphics driver: no compute mode refuses it, and NVML has its
// process in the list of graphics, too.
func (m *Model) CreateGraphics(id ClientID, instance uint64, chain Chain) (uint64, error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	made, err := m.createContext(c, instance, chain)
	if err == nil {
		c.list = wire.ListGraphics
	}
	return made, err
}

func (m *Model) createContext(c *client, instance uint64, chain Chain) (uint64, error) {
	part, ci, err := c.gpu.part(instance)
	if err != nil {
		return 0, err
	}
	if c.objects() >= maxObjects {
		return 0, wire.OutOfMemory
	}
	// On an H200 the context of an MPS client counts to its limit in full.
	size := c.gpu.hw.Model.Context
	if !c.room(size) {
		return 0, wire.OutOfMemory
	}
	h, err := m.take(c.gpu, part, size, chain)
	if err != nil {
		return 0, err
	}
	if err := m.takeUnlisted(c.gpu, &h); err != nil {
		c.gpu.release(&h)
		return 0, err
	}
	h.ci = ci
	c.pinned += h.bytes // at most the GPU's memory: cannot wrap
	m.lastID++
	c.contexts[m.lastID] = &h
	m.grown(c.gpu)
	return m.lastID, nil
}

// DestroyContext frees a context and what was allocated in it. Its launches run on. Errors: NotFound, Lost.
func (m *Model) DestroyContext(id ClientID, context uint64) error {
	c, err := m.client(id)
	if err != nil {
		return err
	}
	h, ok := c.contexts[context]
	if !ok {
		return wire.NotFound
	}
	for at, a := range c.allocs {
		if a.context == context {
			c.free(at, a)
		}
	}
	for at, s := range c.imports {
		if s.context == context {
			c.unshare(at, s)
		}
	}
	c.gpu.release(h)
	c.pinned = c.pinned.SubFloor(h.bytes)
	delete(c.contexts, context)
	return nil
}

// Alloc takes bytes for a process in chain and returns the address, or handle, by which they are freed.
// Without a context all but linear and managed memory can be had. Managed memory takes only addresses: what
// is on the GPU is for Reside to say. Errors: Invalid (no bytes, no such kind), NotFound (client
// or context), OutOfMemory, Lost.
func (m *Model) Alloc(id ClientID, bytes sharing.Bytes, context uint64, kind wire.Kind, chain Chain) (uint64, error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	if bytes == 0 || kind < wire.KindLinear || kind > wire.KindManaged {
		return 0, wire.Invalid
	}
	part, ci, err := c.partOf(context, kind)
	if err != nil {
		return 0, err
	}
	if c.objects() >= maxObjects {
		return 0, wire.OutOfMemory
	}
	a := &allocation{usage: usage{part: part}, context: context, holders: 1}
	if kind == wire.KindManaged {
		a.managed = bytes
	} else if !c.room(bytes) {
		return 0, wire.OutOfMemory
	} else if a.usage, err = m.take(c.gpu, part, bytes, chain); err != nil {
		return 0, err
	}
	a.ci = ci
	at, ok := c.gpu.place.get(bytes)
	if !ok {
		c.gpu.release(&a.usage)
		return 0, wire.OutOfMemory
	}
	c.allocs[at], c.gpu.memory[at] = a, a
	if a.managed == 0 {
		c.pinned += bytes
	}
	m.grown(c.gpu)
	return at, nil
}

// partOf says where an allocation goes: to its context's part; without one to that of the client's first
// context.
func (c *client) partOf(context uint64, kind wire.Kind) (part int, ci uint64, err error) {
	if h, ok := c.contexts[context]; ok {
		return h.part, h.ci, nil
	}
	if context != 0 || kind == wire.KindLinear || kind == wire.KindManaged {
		return 0, 0, wire.NotFound
	}
	var first uint64
	for ctx := range c.contexts {
		if first == 0 || ctx < first {
			first = ctx
		}
	}
	if first != 0 {
		return c.contexts[first].part, c.contexts[first].ci, nil
	}
	return c.gpu.part(0)
}

// Free gives an allocation back, or one import of another's. Errors: NotFound, Lost.
func (m *Model) Free(id ClientID, at uint64) error {
	c, err := m.client(id)
	if err != nil {
		return err
	}
	if a, ok := c.allocs[at]; ok {
		c.free(at, a)
		return nil
	}
	s, ok := c.imports[at]
	if !ok {
		return wire.NotFound
	}
	if s.times--; s.times == 0 {
		c.unshare(at, s)
	}
	return nil
}

func (c *client) free(at uint64, a *allocation) {
	if a.managed == 0 {
		c.pinned = c.pinned.SubFloor(a.bytes)
	}
	delete(c.allocs, at)
	c.gpu.letGo(at, a)
}
