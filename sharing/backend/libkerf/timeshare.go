// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/compute"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/throttle"
)

// TimeHost is what a Pacing needs of its user.
type TimeHost interface {
	// Changes counts the changes of what Timed returns. Changed returns a channel that is closed at the next one.
	Changes() uint64
	Changed() <-chan struct{}
	// Timed returns the attachments, and whether each may have its percent at most, even if no other attachment needs
	// the time.
	Timed() (attachments []Attachment, strict bool)
	// ProcessTime is what part of the time since then each process used of a GPU.
	ProcessTime(ctx context.Context, gpu sharing.GPURef, since time.Time) (sharing.TimeUse, error)
	// Ended reports whether no process has the PID.
	Ended(pid int) bool
}

// Pacing tells the pacer whose time on which GPU is counted, and by what rule. One goroutine may use it.
type Pacing struct {
	backend *Backend
	host    TimeHost
	// at is the change of state that mode, attachments and groups are of.
	known       bool
	at          uint64
	mode        compute.Mode
	attachments []throttle.Attachment
	groups      map[compute.ID][]cgroup.Group
	// owners are the attachments of the processes in a GPU's last answers, and when they were seen last. One that ended
	// since is in no cgroup any more.
	owners map[sharing.GPURef]map[int]owner
}

type owner struct {
	id   compute.ID
	seen time.Time
}

// NewPacing is the pacer's source for the attachments of the host.
func (b *Backend) NewPacing(host TimeHost) *Pacing { return &Pacing{backend: b, host: host} }

// Changed implements throttle.Source.
func (t *Pacing) Changed() <-chan struct{} { return t.host.Changed() }

// Attachments implements throttle.Source.
func (t *Pacing) Attachments() (compute.Mode, []throttle.Attachment) {
	if now := t.host.Changes(); !t.known || t.at != now {
		t.known, t.at = true, now
		t.look()
	}
	return t.mode, t.attachments
}

// look finds the attachments, and has their programs count time, or no longer.
func (t *Pacing) look() {
	all, strict := t.host.Timed()
	t.mode = compute.Fair
	if strict {
		t.mode = compute.Strict
	}
	divided := map[sharing.GPURef]bool{} // an attachment has a percent of it
	for _, l := range all {
		for _, f := range l.Caps {
			divided[f.GPU] = divided[f.GPU] || f.Percent > 0
		}
	}
	t.attachments, t.groups = nil, map[compute.ID][]cgroup.Group{}
	for _, l := range all {
		if region := t.backend.wholeOf(l.ID); region != nil {
			t.add(l, region, divided)
		}
	}
}

func (t *Pacing) add(l Attachment, region *region, divided map[sharing.GPURef]bool) {
	id := compute.ID(l.ID)
	t.groups[id] = l.Groups
	for _, f := range l.Caps {
		most := f.Percent
		if t.mode == compute.Fair {
			most = 0
		}
		if divided[f.GPU] {
			t.attachments = append(t.attachments, throttle.Attachment{
				GPU: f.GPU, Grant: compute.Grant{ID: id, Percent: f.Percent, Priority: l.Priority},
				Account: budget{t.backend, region, f.GPU, most},
			})
		}
		if err := region.setPercent(f, divided[f.GPU]); err != nil {
			t.backend.opt.Log.Warn("failed to set compute percent", "grant", l.ID, "gpu", f.GPU.String(), "error",
				err.Error())
		}
	}
}

// setPercent has programs count their time on a GPU, or not. An attachment without a percent also counts if another on
// the GPU has one. Without a count it would take the other's time. It may use all that is free.
func (g *region) setPercent(f sharing.Share, counted bool) error {
	percent := f.Percent
	switch {
	case !counted:
		percent = 0
	case percent == 0:
		percent = sharing.FullGPU
	}
	return g.use(func(open *libkerf.UsageFile) error { return open.SetPercent(f.GPU, percent) })
}

// budget is a region's budget of one GPU's time. Where limit is not 0 its programs are to have no more.
type budget struct {
	backend *Backend
	region  *region
	gpu     sharing.GPURef
	limit   sharing.Percent
}

// mostBudget is more than a budget ever holds or owes: programs can write to it.
const mostBudget = time.Hour

// Read implements throttle.Account.
func (b budget) Read() (out throttle.Counts, err error) {
	err = b.region.use(func(open *libkerf.UsageFile) error {
		all, err := open.Budgets()
		for _, one := range all {
			if one.GPU == b.gpu {
				out = throttle.Counts{Balance: max(-mostBudget, min(one.Balance, mostBudget)), Charged: max(0,
					one.Charged),
					Occupied: max(0, one.Occupied), Launches: one.Launches}
			}
		}
		return err
	})
	return out, err
}

// AddTokens implements throttle.Account.
func (b budget) AddTokens(add time.Duration, turn compute.LaunchState) error {
	word := map[compute.LaunchState]libkerf.LaunchState{compute.Paused: libkerf.LaunchPaused,
		compute.Alone: libkerf.LaunchAlone}[turn]
	return b.region.use(func(open *libkerf.UsageFile) error { return open.AddTokens(b.gpu, add, word) })
}

// Settle implements throttle.Account.
func (b budget) Settle(ran time.Duration, used compute.Share, known bool) error {
	b.backend.mu.Lock()
	b.region.reportTime(b.gpu, used, known, known && past(used, b.limit))
	b.backend.mu.Unlock()
	return b.region.use(func(open *libkerf.UsageFile) error { return open.Settle(b.gpu, ran) })
}

// Used implements throttle.Source. Time of a process that ended before it was seen may belong to any grant: the driver
// does not report to which.
func (t *Pacing) Used(ctx context.Context, gpu sharing.GPURef, since time.Time) (throttle.Use, error) {
	sampled, err := t.host.ProcessTime(ctx, gpu, since)
	if err != nil {
		return throttle.Use{}, fmt.Errorf("use of time on gpu %q: %w", gpu, err)
	}
	owners := t.ownersOf(gpu)
	out := throttle.Use{To: sampled.To, Percent: map[compute.ID]int{}, Doubt: map[compute.ID]bool{}}
	for pid, row := range sampled.Rows {
		id, ours, gone := t.ownerOf(pid, owners)
		if gone {
			return throttle.Use{}, fmt.Errorf("use of time on gpu %q: process %d has ended: %w", gpu, pid,
				sharing.ErrUnavailable)
		}
		if out.Busy += row.SM; ours {
			out.Percent[id] += row.SM
		}
	}
	for _, pid := range sampled.Doubt {
		if id, ours, _ := t.ownerOf(pid, owners); ours {
			out.Doubt[id] = true
		}
	}
	return out, nil
}

// ownerOf returns the grant of a process; gone is true if the process has ended and its grant is unknown.
func (t *Pacing) ownerOf(pid int, owners map[int]owner) (id compute.ID, ours, gone bool) {
	o, known := owners[pid]
	if known && o.seen.IsZero() {
		return o.id, true, false
	}
	gone = t.host.Ended(pid)
	return o.id, known && gone, gone && !known // else its pid is another's now
}

// ownersOf are the processes of the attachments whose time on the GPU is counted. Earlier ones stay for as long as a
// driver's samples go back.
func (t *Pacing) ownersOf(gpu sharing.GPURef) map[int]owner {
	now, out := time.Now(), map[int]owner{}
	for pid, o := range t.owners[gpu] {
		if o.seen.IsZero() {
			o.seen = now
		}
		if now.Sub(o.seen) < sharing.TimeRing {
			out[pid] = o
		}
	}
	for _, l := range t.attachments {
		if l.GPU != gpu {
			continue
		}
		pids, err := cgroup.ProcsOf(t.groups[l.Grant.ID])
		if err != nil {
			continue // it ends
		}
		for _, pid := range pids {
			out[pid] = owner{id: l.Grant.ID}
		}
	}
	if t.owners == nil {
		t.owners = map[sharing.GPURef]map[int]owner{}
	}
	t.owners[gpu] = out
	return out
}

// past reports whether a use of time is surely above a share, by more than the throttle's error. A share of 0 has no
// bound.
func past(used compute.Share, share sharing.Percent) bool {
	const stray = 15
	most := float64(min(share, sharing.FullGPU))
	return share > 0 && used.Least > most && used.Percent > most+stray
}

// reportTime records the attachment's use of a GPU's time by the driver's samples, if that is known, and whether it was
// over its share. The caller holds the backend's lock.
func (g *region) reportTime(gpu sharing.GPURef, used compute.Share, known, past bool) {
	now := reportedTime{gpu: gpu, percent: -1}
	if known {
		now.percent = int(math.Round(used.Percent))
	}
	for _, t := range g.reported {
		if t.gpu == gpu && past {
			now.past = t.past
		}
	}
	if past {
		now.past++
	}
	g.reported = slices.DeleteFunc(g.reported, func(t reportedTime) bool { return t.gpu == gpu })
	g.reported = append(g.reported, now)
}

// reportedTime is the percent of the last seconds that an attachment used a GPU, or -1 if unknown. For past seconds in
// a row that was over its share.
type reportedTime struct {
	gpu           sharing.GPURef
	percent, past int
}
