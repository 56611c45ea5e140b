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
	if !backend.PropertiesOf(g.Claim.Backend).Served {
		return nil
	}
	uses, err := att.Driver.Processes(ctx, f.GPU)
	if err != nil {
		return fmt.Errorf("the driver does not tell which of its processes are clients of MPS, so it cannot be "+
			"lowered: %w (%w)", sharing.ErrUnavailable, err)
	}
	pids, err := cgroup.ProcsOf(r.groupsOf(g.Claim.ID))
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
				"keep the old limit: ask for a new grant instead: %w",
				other.ID, terms.Memory, sharing.ErrConflict)
		}
	}
	return nil
}

// groupsOf are the cgroups of a claim's lease, none where it has none.
func (r *Resizer) groupsOf(id ledger.ClaimID) []cgroup.Group {
	g, _ := r.Store.Get(id)
	if g.Lease == nil {
		return nil
	}
	return []cgroup.Group{r.GroupOf(*g.Lease)}
}

// noteStart remembers what the processes of a lease that MPS holds were started with, before its size was first
// changed.
func (r *Resizer) noteStart(c resizing) {
	if !backend.PropertiesOf(c.grant.Claim.Backend).Served || c.grant.Lease == nil {
		return
	}
	pids, err := cgroup.ProcsOf(r.groupsOf(c.grant.Claim.ID))
	if err != nil {
		pids = nil // it ends
	}
	memory, _ := c.from.Total()
	_ = r.Store.Note(func(l *ledger.Ledger) error {
		l.SetChecks(c.grant.Claim.ID, c.grant.Lease.ContainerID, func(c *ledger.Checks) {
			c.StartedWith, c.StartedPIDs = cmp.Or(c.StartedWith, memory), pids
		})
		return nil
	})
}

// StartedWhy says which processes of an attachment have less than its cap because they started before it grew. Those of
// the attachment are now, if they were read.
func StartedWhy(g ledger.Grant, now []int) string {
	if g.Lease == nil || g.Lease.StartedWith == 0 {
		return ""
	}
	if memory, _ := g.Claim.Placement.Total(); memory <= g.Lease.StartedWith {
		return ""
	}
	if len(now) == 0 {
		now = g.Lease.StartedPIDs
	}
	who := "its processes"
	if len(now) > 0 {
		who += " (pid " + Numbers(now) + ")"
	}
	return fmt.Sprintf("%s, and what they start, have at most the %s that they were started with, and clients of MPS "+
		"what they connected with; a container that is started again, or a program whose "+
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT says more, has all",
		who, g.Lease.StartedWith)
}
