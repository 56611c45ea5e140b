// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Reside brings managed memory onto the GPU, or takes it off, until bytes of it are there, and returns how many
// are: fewer when there is no room, also after other managed memory has been pushed out. It is charged to no
// limit, as with the real driver. Errors: Invalid (more than there is of it), NotFound, Lost.
func (m *Model) Reside(id ClientID, at uint64, bytes sharing.Bytes) (sharing.Bytes, error) {
	c, err := m.client(id)
	if err != nil {
		return 0, err
	}
	a, ok := c.allocs[at]
	if !ok || a.managed == 0 {
		return 0, wire.NotFound
	}
	if bytes > a.managed {
		return 0, wire.Invalid
	}
	g := c.gpu
	if bytes <= a.bytes {
		g.used[a.part] = g.used[a.part].SubFloor(a.bytes - bytes)
		a.bytes = bytes
		return bytes, nil
	}
	room := g.capacity[a.part].SubFloor(g.used[a.part]) + m.evictable(g, a.part, a)
	more := min(bytes-a.bytes, room)
	m.evict(g, a.part, more, a)
	g.used[a.part] += more
	a.bytes += more
	m.grown(g)
	return a.bytes, nil
}

// resident returns the managed memory that is on a part of a GPU, but for one allocation, by address.
func (m *Model) resident(g *gpu, part int, but *allocation) []*allocation {
	type placed struct {
		at uint64
		a  *allocation
	}
	var all []placed
	for _, c := range m.clients {
		if c.gpu != g {
			continue
		}
		for at, a := range c.allocs {
			if a != but && a.managed > 0 && a.bytes > 0 && a.part == part {
				all = append(all, placed{at, a})
			}
		}
	}
	slices.SortFunc(all, func(x, y placed) int { return cmp.Compare(x.at, y.at) })
	list := make([]*allocation, len(all))
	for i, p := range all {
		list[i] = p.a
	}
	return list
}

// evictable is how much managed memory could make room on a part, but for one allocation.
func (m *Model) evictable(g *gpu, part int, but *allocation) sharing.Bytes {
	var sum sharing.Bytes
	for _, a := range m.resident(g, part, but) {
		sum += a.bytes // all of it is on the GPU: cannot wrap
	}
	return sum
}

// evict pushes managed memory out until bytes more fit on a part, or nothing is left to push. No client learns of it,
// as a page fault would bring it back.
func (m *Model) evict(g *gpu, part int, bytes sharing.Bytes, but *allocation) {
	room := g.capacity[part].SubFloor(g.used[part])
	if bytes <= room {
		return
	}
	need := bytes - room
	for _, a := range m.resident(g, part, but) {
		out := min(need, a.bytes)
		a.bytes -= out
		g.used[part] = g.used[part].SubFloor(out)
		if need -= out; need == 0 {
			return
		}
	}
}
