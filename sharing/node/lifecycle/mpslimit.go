// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// MPS gives each client its limit when it connects: the lower one of its daemon's and its environment's. It changes
// neither for a connected client. So a grant under MPS can grow at any time, for programs that start with the new
// environment. It can shrink only while none of its processes is a client, and no other grant of the daemon has more.
// Then the daemon's limit is the lower one.

// lowerableMPS rejects a lower limit that MPS would not enforce for all clients. ErrConflict names the clients with
// the old limit; ErrUnavailable means that they are unknown. The daemon already has the lower limit, for clients that
// connect meanwhile.
func (r *Resizer) lowerableMPS(ctx context.Context, att gpudriver.Attached, g ledger.Grant, of backend.Grant,
	f sharing.Share) error {
	if !backend.PropertiesOf(g.Backend).Served {
		return nil
	}
	uses, err := att.Driver.Processes(ctx, f.GPU)
	if err != nil {
		return fmt.Errorf("the driver does not tell which of its processes are clients of MPS, so it cannot be "+
			"lowered: %w (%w)", sharing.ErrUnavailable, err)
	}
	pids, err := cgroup.ProcsOf(r.groupsOf(g.ID))
	if err != nil {
		return fmt.Errorf("its processes are unknown, so it cannot be lowered: %w (%w)", sharing.ErrUnavailable, err)
	}
	var keep []int
	for _, u := range uses {
		if slices.Contains(pids, u.PID) {
			keep = append(keep, u.PID)
		}
	}
	if len(keep) > 0 {
		slices.Sort(keep)
		return fmt.Errorf("MPS changes no limit of a client that runs, and these keep theirs: pid %s: end them and "+
			"try again: %w", Numbers(keep), sharing.ErrConflict)
	}
	daemon, _ := mps.Of(of, nil)
	for _, other := range r.Served() {
		if key, terms := mps.Of(other, nil); other.ID != of.ID && key == daemon && terms.Memory > f.Memory {
			return fmt.Errorf("its MPS daemon serves grant %s with %s too, so that what its processes start would "+
				"keep the old limit: request a new grant instead: %w",
				other.ID, terms.Memory, sharing.ErrConflict)
		}
	}
	return nil
}

// groupsOf are the cgroups of a grant's attachment, none where it has none.
func (r *Resizer) groupsOf(id ledger.GrantID) []cgroup.Group {
	g, _ := r.Store.Get(id)
	if g.Active == nil {
		return nil
	}
	return []cgroup.Group{r.GroupOf(*g.Active)}
}

// noteStart remembers what the processes of an attachment that MPS holds were started with, before its size was first
// changed.
func (r *Resizer) noteStart(c resizing) {
	if !backend.PropertiesOf(c.grant.Backend).Served || c.grant.Active == nil {
		return
	}
	pids, err := cgroup.ProcsOf(r.groupsOf(c.grant.ID))
	if err != nil {
		pids = nil // it ends
	}
	memory, _ := c.from.Total()
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		l.SetChecks(c.grant.ID, c.grant.Active.ContainerID, func(c *ledger.Checks) {
			c.StartedWith, c.StartedPIDs = cmp.Or(c.StartedWith, memory), pids
		})
		return nil
	})
}

// StartedReason says which processes of an attachment have less than its cap because they started before it grew. Those
// of the attachment are now, if they were read.
func StartedReason(g ledger.Grant, now []int) string {
	if g.Active == nil || g.Active.StartedWith == 0 {
		return ""
	}
	if memory, _ := g.Placement.Total(); memory <= g.Active.StartedWith {
		return ""
	}
	if len(now) == 0 {
		now = g.Active.StartedPIDs
	}
	who := "its processes"
	if len(now) > 0 {
		who += " (pid " + Numbers(now) + ")"
	}
	return fmt.Sprintf("%s, and what they start, have at most the %s that they were started with, and clients of MPS "+
		"what they connected with; a container that is started again, or a program whose "+
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT says more, has all",
		who, g.Active.StartedWith)
}
