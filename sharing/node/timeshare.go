// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/compute"
	"github.com/kerf-gpu/kerf/sharing/caps/pace"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// timeshares tells the pacer whose time on which GPU is counted, and by what rule. The pacer's goroutine alone uses it.
type timeshares struct {
	*Runtime
	// at is the change of state that mode, leases and groups are of.
	known  bool
	at     uint64
	mode   compute.Mode
	leases []pace.Lease
	groups map[compute.ID][]cgroup.Group
	// owners are the leases of the processes that were seen at a GPU's last answer: one that ended since is in no
	// cgroup any more.
	owners map[sharing.GPUID]map[int]compute.ID
}

// shared is a lease that the preloaded library holds, or all those that share a cap, as far as their time is concerned.
type shared struct {
	id     compute.ID
	region *region
	groups []cgroup.Group
	parts  sharing.Placement
	// priority is its class: whom idle time is lent to first.
	priority int
}

// Leases implements pace.Source.
func (t *timeshares) Leases() (compute.Mode, []pace.Lease) {
	if now := t.changed.seen(); !t.known || t.at != now {
		t.known, t.at = true, now
		t.look()
	}
	return t.mode, t.leases
}

// look finds the leases, and has their programs count time, or no longer.
func (t *timeshares) look() {
	t.mu.Lock()
	t.mode = compute.Fair
	if t.pool.Compute == config.ComputeStrict {
		t.mode = compute.Strict
	}
	var all []*shared
	of := map[*region]*shared{}
	divided := map[sharing.GPUID]bool{} // somebody has a percent of it
	for _, g := range t.ledger.Grants() {
		h := t.held[g.Claim.ID]
		if g.Lease == nil || !countsTime(h) {
			continue
		}
		if s := of[h.region]; s != nil {
			s.groups, s.priority = append(s.groups, h.group), max(s.priority, int(t.priorityOf(g, h)))
			continue
		}
		s := &shared{
			id: compute.ID(g.Claim.ID), region: h.region, groups: []cgroup.Group{h.group}, parts: g.Caps(),
			priority: int(t.priorityOf(g, h)),
		}
		of[h.region] = s
		all = append(all, s)
		for _, f := range s.parts {
			divided[f.GPU] = divided[f.GPU] || f.Percent > 0
		}
	}
	t.mu.Unlock()
	t.leases, t.groups = nil, map[compute.ID][]cgroup.Group{}
	for _, s := range all {
		t.groups[s.id] = s.groups
		for _, f := range s.parts {
			if divided[f.GPU] {
				t.leases = append(t.leases, pace.Lease{
					GPU: f.GPU, Grant: compute.Grant{ID: s.id, Percent: f.Percent, Priority: s.priority}, Account: budget{s.region, f.GPU},
				})
			}
			if err := s.region.setPercent(f, divided[f.GPU]); err != nil {
				t.log.Warn("share of a gpu's time not set", "claim", string(s.id), "gpu", string(f.GPU), "error", err.Error())
			}
		}
	}
}

// countsTime reports whether the programs of a lease are held to a share of time; it needs the runtime's lock.
func countsTime(h *holding) bool {
	return h != nil && h.backend == config.BackendLibkerf && h.region != nil && h.region.lost == ""
}

// setPercent has programs count their time on a GPU, or not. A lease that has no percent beside one that has counts
// too, since it would take the other's: it may have all that is left.
func (g *region) setPercent(f sharing.Fragment, counted bool) error {
	percent := f.Percent
	switch {
	case !counted:
		percent = 0
	case percent == 0:
		percent = sharing.FullGPU
	}
	return g.use(func(open *libkerf.Region) error { return open.SetPercent(f.GPU, percent) })
}

// budget is a region's budget of one GPU's time.
type budget struct {
	region *region
	gpu    sharing.GPUID
}

// mostBudget is more than a budget ever holds or owes: programs can write to it.
const mostBudget = time.Hour

// Read implements pace.Account.
func (b budget) Read() (balance, charged time.Duration, err error) {
	err = b.region.use(func(open *libkerf.Region) error {
		all, err := open.Budgets()
		for _, one := range all {
			if one.GPU == b.gpu {
				balance, charged = max(-mostBudget, min(one.Balance, mostBudget)), max(0, one.Charged)
			}
		}
		return err
	})
	return balance, charged, err
}

// Refill implements pace.Account.
func (b budget) Refill(add time.Duration) error {
	return b.region.use(func(open *libkerf.Region) error { return open.Refill(b.gpu, add) })
}

// Settle implements pace.Account.
func (b budget) Settle(ran time.Duration) error {
	return b.region.use(func(open *libkerf.Region) error { return open.Settle(b.gpu, ran) })
}

// Used implements pace.Source. What a process used that has ended since, and was not seen before, could be anybody's:
// for that second the driver then does not tell.
func (t *timeshares) Used(ctx context.Context, gpu sharing.GPUID) (map[compute.ID]int, error) {
	used, err := t.used(ctx, gpu)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.leases {
		if b, ok := l.Account.(budget); ok && l.GPU == gpu {
			b.region.tellTime(gpu, used[l.Grant.ID], err == nil, t.mode == compute.Strict && past(used[l.Grant.ID], l.Grant.Percent))
		}
	}
	return used, err
}

func (t *timeshares) used(ctx context.Context, gpu sharing.GPUID) (map[compute.ID]int, error) {
	t.mu.Lock()
	att := t.att
	t.mu.Unlock()
	if att == nil {
		return nil, fmt.Errorf("use of time on gpu %q: no driver answers: %w", gpu, sharing.ErrUnavailable)
	}
	percents, err := att.Driver.ProcessTime(ctx, gpu, time.Now().Add(-pace.UsedEvery))
	if err != nil {
		return nil, fmt.Errorf("use of time on gpu %q: %w", gpu, err)
	}
	before, owners := t.owners[gpu], t.members(gpu)
	if t.owners == nil {
		t.owners = map[sharing.GPUID]map[int]compute.ID{}
	}
	t.owners[gpu] = owners
	out := map[compute.ID]int{}
	for pid, percent := range percents {
		id, ours := owners[pid]
		if !ours {
			_, err := t.opt.Cgroups.OfProcess(pid)
			gone := errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrStale)
			if id, ours = before[pid]; !ours && gone {
				return nil, fmt.Errorf("use of time on gpu %q: process %d has ended: %w", gpu, pid, sharing.ErrUnavailable)
			}
			ours = ours && gone // else its pid is another's now
		}
		if ours {
			out[id] += percent
		}
	}
	return out, nil
}

// members are the processes of the leases whose time on the GPU is counted.
func (t *timeshares) members(gpu sharing.GPUID) map[int]compute.ID {
	out := map[int]compute.ID{}
	for _, l := range t.leases {
		if l.GPU != gpu {
			continue
		}
		pids, err := procsOf(t.groups[l.Grant.ID])
		if err != nil {
			continue // it ends
		}
		for _, pid := range pids {
			out[pid] = l.Grant.ID
		}
	}
	return out
}

// past reports whether a use of time is further above a share than the throttle strays in a second; a lease without
// a percent is never.
func past(used int, share sharing.Percent) bool {
	const stray = 15
	return share > 0 && used > int(min(share, sharing.FullGPU))+stray
}

// tellTime notes what the driver said of the lease's use of a GPU's time in the last second, and whether it was past
// its share. It needs the runtime's lock.
func (g *region) tellTime(gpu sharing.GPUID, percent int, told, past bool) {
	now := toldTime{gpu: gpu, percent: percent}
	for _, t := range g.told {
		if t.gpu == gpu && told && past {
			now.past = t.past
		}
	}
	if past {
		now.past++
	}
	g.told = slices.DeleteFunc(g.told, func(t toldTime) bool { return t.gpu == gpu })
	if told {
		g.told = append(g.told, now)
	}
}

// toldTime is the part of the last second, in percent, that a lease used of a GPU, and for how many seconds in a row
// that was past its share.
type toldTime struct {
	gpu           sharing.GPUID
	percent, past int
}
