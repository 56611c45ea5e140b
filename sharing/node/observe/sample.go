// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what a node's GPUs are used for, and says what the readings mean.
package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// Reading is one GPU's usage at one moment.
type Reading struct {
	// Used is what the driver counts as used.
	Used sharing.Bytes
	// Utilization is 0..100 over the driver's last window, -1 when not known.
	Utilization int
	// Processes are those that hold memory of the GPU.
	Processes []lists.Use
}

// Key is a grant on a GPU.
type Key struct {
	Grant ledger.GrantID
	GPU   sharing.GPURef
}

// Sample is what the driver and the kernel say of usage, at one moment. It does not change. The zero value knows
// nothing.
type Sample struct {
	// GPUs are those that answered.
	GPUs map[sharing.GPURef]Reading
	// PIDs are the processes of each grant's cgroup and its children.
	PIDs map[ledger.GrantID][]int
	// Unmanaged are the processes on a GPU without a grant for it.
	Unmanaged map[sharing.GPURef][]int
	// Ended is what processes of a grant have of a GPU that have ended.
	Ended map[Key]EndedUse
	// capped is the driver's own count of what a cgroup uses of a GPU, where it sets a limit.
	capped map[Key]sharing.Bytes
	looks  map[sharing.GPURef]lists.Observation
	// unattributed is a GPU's unattributed memory, where that is much. unlisted is what this sample alone shows of it.
	unattributed, unlisted map[sharing.GPURef]sharing.Bytes
}

// Used is what a grant uses of one GPU: the driver's own count where it sets a limit, else ByProcess. It is false if
// that is not known.
func (s Sample) Used(id ledger.GrantID, gpu sharing.GPURef) (sharing.Bytes, bool) {
	if used, ok := s.capped[Key{id, gpu}]; ok {
		return used, true
	}
	return s.ByProcess(id, gpu)
}

// ByProcess is the sum over the processes of a grant, also of ended ones, whatever the driver's limit counts.
func (s Sample) ByProcess(id ledger.GrantID, gpu sharing.GPURef) (sharing.Bytes, bool) {
	look, ok := s.looks[gpu]
	_, listed := s.PIDs[id]
	if !ok || !listed {
		return 0, false
	}
	c := look.Charge(listing.Owner(id))
	return c.Bytes, c.Known
}

// EndedUse is what processes of a grant have of a GPU that have ended, and who keeps it.
type EndedUse struct {
	bytes sharing.Bytes
	// inferred is true if the grant is only the one that could have made it.
	inferred  bool
	retainers []int
	// unread is why who keeps it could not be read.
	unread error
}

// endedUses finds what grants are charged with whose processes have ended.
func endedUses(l *lists.Lists, looks []lists.Observation, grants []lists.Grant) map[Key]EndedUse {
	out := map[Key]EndedUse{}
	for _, look := range looks {
		for _, g := range grants {
			c := look.Charge(g.Owner)
			if c.Ended == 0 {
				continue
			}
			use := EndedUse{bytes: c.Ended, inferred: c.Inferred > 0}
			retainers, err := l.Retainers(look, g)
			for _, p := range retainers {
				use.retainers = append(use.retainers, p.PID)
			}
			slices.Sort(use.retainers)
			use.unread = err
			out[Key{ledger.GrantID(g.Owner), look.GPU}] = use
		}
	}
	return out
}

// Sentence describes the use for people. gpu is the index of the GPU.
func (u EndedUse) Sentence(id ledger.GrantID, gpu int) string {
	text := fmt.Sprintf("grant %s: %s of GPU %d belongs to processes that have ended", id, u.bytes, gpu)
	switch {
	case u.unread != nil:
		text += fmt.Sprintf("; Kerf cannot tell which processes keep the GPU's files open: %s", sharing.Plain(u.unread))
	case len(u.retainers) == 0:
		text += "; no process of the grant has the GPU's files open, so another process keeps them open"
	case len(u.retainers) == 1:
		text += fmt.Sprintf("; PID %d keeps the GPU's files open", u.retainers[0])
	default:
		text += fmt.Sprintf("; PIDs %s keep the GPU's files open",
			strings.Join(strings.Fields(strings.Trim(fmt.Sprint(u.retainers), "[]")), ", "))
	}
	if u.inferred {
		text += "; no other grant has such a process"
	}
	return text
}
