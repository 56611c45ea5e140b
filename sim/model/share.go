// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// shared is a client's hold on memory that another one made.
type shared struct {
	*allocation
	times   int    // how often it was imported
	context uint64 // what it goes with; 0: nothing
	by      uint64 // in MIG mode, the id of the compute instance that its holder runs on
}

// Import lets a client hold memory that another one made, by the address that it begins at, and returns its size. With
// a context the hold goes with that. It is charged to no limit of the client: the driver's open kernel modules charge
// who asked for the memory, and end the charge with the last reference to it (memacct.c). Errors: Invalid (its own
// memory, or on another MIG instance), NotFound (client, context, no such memory), OutOfMemory (too many objects),
// Lost.
func (m *Model) Import(id ClientID, at, context uint64) (sharing.Bytes, error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	a, ok := c.gpu.memory[at]
	if !ok || a.managed > 0 {
		return 0, wire.NotFound
	}
	part, ci, err := c.partOf(context, wire.KindVMM)
	if err != nil {
		return 0, err
	}
	if _, own := c.allocs[at]; own || part != a.part {
		return 0, wire.Invalid
	}
	return a.bytes, c.share(at, a, context, ci)
}

func (c *client) share(at uint64, a *allocation, context, ci uint64) error {
	if s, ok := c.imports[at]; ok {
		s.times++
		return nil
	}
	if c.objects() >= maxObjects {
		return wire.OutOfMemory
	}
	a.holders++
	c.imports[at] = &shared{a, 1, context, ci}
	return nil
}

// Export makes a client, which has nothing yet, the file that stands for memory: it holds what process pid holds at an
// address, and is no process itself. Memory lives until the files that stand for it are closed, too (cuMemRelease:
// "shareable counterparts"). Errors: Invalid (has contexts or memory), NotFound (client, or the process holds no such
// memory), Lost.
func (m *Model) Export(id ClientID, at uint64) error {
	c, err := m.client(id)
	if err != nil {
		return err
	}
	if c.objects() > 0 || c.serves || c.mps != nil {
		return wire.Invalid
	}
	a, ok := c.gpu.memory[at]
	if !ok || a.managed > 0 || !m.holds(c.gpu, c.pid, at) {
		return wire.NotFound
	}
	c.file = true
	return c.share(at, a, 0, a.ci)
}

func (m *Model) holds(g *gpu, pid int, at uint64) bool {
	for _, c := range m.clients {
		if c.gpu != g || !c.is(pid) || c.file {
			continue
		}
		if c.allocs[at] != nil || c.imports[at] != nil {
			return true
		}
	}
	return false
}

// unshare ends a client's hold on what another one made.
func (c *client) unshare(at uint64, s *shared) {
	delete(c.imports, at)
	c.gpu.letGo(at, s.allocation)
}

// letGo is the end of one holder; with the last one the memory goes back to the GPU.
func (g *gpu) letGo(at uint64, a *allocation) {
	if a.holders--; a.holders > 0 {
		return
	}
	g.release(&a.usage)
	g.place.put(at)
	delete(g.memory, at)
}

// counts reports whether NVML counts what was imported for its importer. The driver's open kernel modules keep three
// sums for a process (gpuFindClientInfoWithPidIterator):
//   - what it alone holds, whatever process made it;
//   - what it made and others hold, too;
//   - what others made.
//
// That NVML shows the first two is inferred. If the maker has let memory go, and several processes or only a file hold
// it, then only the GPU's use counts it.
func (s *shared) counts() bool { return s.holders == 1 }

// sharing tells whether the client holds memory together with others.
func (c *client) sharing() bool {
	if len(c.imports) > 0 {
		return true
	}
	for _, a := range c.allocs {
		if a.holders > 1 {
			return true
		}
	}
	return false
}

// objects is how many contexts and blocks of memory the client uses.
func (c *client) objects() int { return len(c.contexts) + len(c.allocs) + len(c.imports) }
