// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// ClientID names a process's hold on one GPU; it is never used again.
type ClientID uint64

// maxObjects is the most allocations and contexts of a client, so that no client makes the daemon's own
// memory grow without end.
const maxObjects = 1 << 20

type client struct {
	id       ClientID
	pid      int
	ended    bool      // the process has: others have its descriptor
	list     wire.List // where NVML shows its process
	gpu      *gpu
	contexts map[uint64]*usage
	allocs   map[uint64]*allocation // by address
	imports  map[uint64]*shared     // the same, of what others made
	pinned   sharing.Bytes          // contexts and allocations without what is managed

	state  ProcessState
	fault  wire.Status   // what all calls of the process answer since its work went wrong; OK: it has not
	serves bool          // an MPS server
	mps    *attached     // nil: no MPS client
	orphan bool          // its MPS server is gone
	file   bool          // a file that stands for memory, see Export
	engine *engine       // on which its work runs in slices; nil: it had none
	leaves time.Duration // when what it held is gone, after the end of its process; 0: that has not ended
}

// usage is memory in use.
type usage struct {
	bytes sharing.Bytes
	away  sharing.Bytes // what a checkpoint has taken to the host; bytes is 0 then
	part  int           // index in gpu.used
	ci    uint64        // in MIG mode, the compute instance's id
	// unlisted is what the driver needs in addition to these bytes. No limit and no list counts it.
	unlisted sharing.Bytes
	// charged are the limits that count these bytes; those cleared since are among them and of no matter.
	charged []*limit
}

type allocation struct {
	usage
	context uint64 // 0: none
	holders int    // clients that hold it: its maker, and those that imported it
	// managed is the size of managed memory, of which usage is what is on the GPU; 0 for other memory.
	managed sharing.Bytes
}

// Open lets process pid hold something on a GPU. It works on a lost GPU, too: each call then answers Lost.
func (m *Model) Open(index, pid int) (ClientID, error) {
	if index < 0 || index >= len(m.gpus) {
		return 0, wire.Invalid
	}
	m.lastID++
	c := &client{
		id: ClientID(m.lastID), pid: pid, gpu: m.gpus[index],
		contexts: map[uint64]*usage{}, allocs: map[uint64]*allocation{}, imports: map[uint64]*shared{},
	}
	m.clients[c.id] = c
	return c.id, nil
}

// End tells that a client's process has ended, while another process has its descriptor: what it holds stays, and so
// does the process in all lists. The number may be another process's by now, which is not meant where a call names a
// process.
func (m *Model) End(id ClientID) {
	if c, ok := m.clients[id]; ok {
		c.ended = true
	}
}

// is reports whether a client is of the living process that has a number.
func (c *client) is(pid int) bool { return c.pid == pid && !c.ended }

// Close takes back everything that the client alone held, and its launches that have not ended by now. A client
// that is closed already is left alone.
func (m *Model) Close(id ClientID, now time.Duration) {
	c, ok := m.clients[id]
	if !ok {
		return
	}
	c.drop()
	c.stop(m, now)
	delete(m.clients, id)
}

// stop ends the work of a client and, of an MPS server, its clients.
func (c *client) stop(m *Model, now time.Duration) {
	c.gpu.stop(c.id, now)
	if c.serves {
		m.orphans(c, now)
	}
}

// drop gives back all memory.
func (c *client) drop() {
	for at, a := range c.allocs {
		delete(c.allocs, at)
		c.gpu.letGo(at, a)
	}
	for at, s := range c.imports {
		c.unshare(at, s)
	}
	for id, h := range c.contexts {
		c.gpu.release(h)
		delete(c.contexts, id)
	}
	c.pinned = 0
}

// client returns an open client whose GPU, and MPS server, answer.
func (m *Model) client(id ClientID) (*client, error) {
	c, ok := m.clients[id]
	if !ok {
		return nil, wire.NotFound
	}
	if c.gpu.lost {
		return nil, wire.Lost
	}
	if c.orphan {
		return nil, wire.ServerEnded
	}
	if c.state != Running {
		return nil, wire.Locked
	}
	if c.fault != wire.OK {
		return nil, c.fault
	}
	return c, nil
}
