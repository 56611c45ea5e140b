// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// survey is what the policy was told last of the free units of all GPUs in MIG mode.
type survey struct {
	rooms map[*mig.Table]mig.Room
	gpus  int
	// changes of nodes with such GPUs came since then; void where the policy may not know what it was told.
	changes int
	void    bool
}

// rooms adds the GPUs that are cut for pods, and gives their number.
func (s *state) rooms(rooms map[*mig.Table]mig.Room) int {
	gpus := 0
	for _, g := range s.gpus {
		c := s.cut(g.GPU.UUID)
		if c == nil || c.geometry == nil || c.fixed || c.trouble != "" || g.GPU.Health != sharing.HealthOK {
			continue
		}
		room := rooms[c.table]
		if room == nil {
			room = mig.Room{}
			rooms[c.table] = room
		}
		room[c.table.Free(s.taken(g.GPU.UUID))]++
		gpus++
	}
	return gpus
}
