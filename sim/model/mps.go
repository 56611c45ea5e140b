// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// mpsClients is how many clients a server takes on one GPU (Volta and newer).
const mpsClients = 48

// attached makes a client one of an MPS server's: its limits, which hold for the process.
type attached struct {
	server  ClientID
	limit   sharing.Bytes // of memory that stays on the GPU; NoLimit: none
	percent uint64        // of the GPU's threads, 1 to 100
}

// Serve makes a client an MPS server on its GPU. Errors: NotFound, NotSupported (MIG mode, or a GPU older than
// Volta), Lost.
func (m *Model) Serve(id ClientID) error {
	c, err := m.client(id)
	if err != nil {
		return err
	}
	if c.gpu.hw.MIG || c.gpu.hw.Model.CCMajor < 7 {
		return wire.NotSupported
	}
	c.serves = true
	return nil
}

// AddMPSClient makes a client, which has no context yet, one of the MPS server that process pid is. From then on NVML
// shows it in its list of MPS clients. Errors: Invalid (has contexts or memory, percent of 0 or past 100), NotFound
// (client, or no such server on this GPU), Insufficient (the server has as many as it takes), NotReady (the server
// recovers from a fault), Lost.
func (m *Model) AddMPSClient(id ClientID, pid int, limit sharing.Bytes, percent uint64) error {
	c, err := m.client(id)
	switch {
	case err != nil:
		return err
	case c.objects() > 0 || c.serves || c.mps != nil || percent == 0 || percent > 100:
		return wire.Invalid
	}
	server := m.serverOf(c.gpu, pid)
	if server == nil {
		return wire.NotFound
	}
	n := 0
	for _, other := range m.clients {
		if other.mps != nil && other.mps.server == server.id {
			n++
		}
	}
	if n >= mpsClients {
		return wire.Insufficient
	}
	if err := m.ServerState(pid); err != nil {
		return err
	}
	c.mps, c.list = &attached{server: server.id, limit: limit, percent: percent}, wire.ListMPS
	return nil
}

// ServerState tells whether the MPS server that process pid is takes clients. Errors: NotReady (a fault has ended
// clients of it on any GPU, and not all of them have exited).
func (m *Model) ServerState(pid int) error {
	for _, c := range m.clients {
		if c.mps == nil || c.fault == wire.OK {
			continue
		}
		if server := m.clients[c.mps.server]; server != nil && server.is(pid) {
			return wire.NotReady
		}
	}
	return nil
}

func (m *Model) serverOf(g *gpu, pid int) *client {
	for _, c := range m.clients {
		if c.gpu == g && c.is(pid) && c.serves {
			return c
		}
	}
	return nil
}

// orphans ends what the clients of a server that is gone had: the server held it for them.
func (m *Model) orphans(server *client, now time.Duration) {
	for _, c := range m.clients {
		if c.mps != nil && c.mps.server == server.id {
			c.drop()
			c.gpu.stop(c.id, now)
			c.orphan = true
		}
	}
}

// holder is who holds a client's contexts: its MPS server, or itself.
func (c *client) holder() ClientID {
	if c.mps != nil {
		return c.mps.server
	}
	return c.id
}

// room tells whether a client may have so many bytes more under its own limit.
func (c *client) room(bytes sharing.Bytes) bool {
	return c.mps == nil || bytes <= c.mps.limit.SubFloor(c.pinned)
}

// MemoryFor is Memory as a CUDA client sees it: one of an MPS server sees the whole GPU's size, and what its limit
// leaves as free. Errors: NotFound, Lost, ServerGone.
func (m *Model) MemoryFor(id ClientID, chain Chain) (Memory, error) {
	c, err := m.client(id)
	if err != nil {
		return Memory{}, err
	}
	v, err := m.Memory(c.gpu.index, chain)
	if err != nil || c.mps == nil {
		return v, err
	}
	if left := c.mps.limit.SubFloor(c.pinned); left < v.Free {
		v.Used += v.Free - left
		v.Free = left
	}
	return v, nil
}
