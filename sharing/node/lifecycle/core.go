// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle manages grants: it recovers them after a start, sets their caps, and ends them.
//
// An Activator sets the caps of a container or process and makes it the attachment of its grant. A Releaser ends
// attachments whose cgroup is empty, and grants that are no longer needed. A Finder rebuilds the grants after a start,
// and compares them with the list of the container runtime. Caps sets limits, and reads them back while an attachment
// lasts. All of them share one Core. Decisions are made inside the store, where nothing waits for the driver or the
// disk.
package lifecycle

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/handles"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
	"github.com/kerf-gpu/kerf/sharing/node/recovery"
	"github.com/kerf-gpu/kerf/sharing/node/store"
	"github.com/kerf-gpu/kerf/sharing/node/work"
)

// Host is the machine on which grants live.
type Host struct {
	Cgroups cgroup.Hierarchy // cgroup v2
	// Parent is the directory below Cgroups for the cgroups of grants; this runtime alone uses it.
	Parent string
	// DevRoot is the directory that holds dev/nvidiaN. CapsRoot holds the host's dev/nvidia-caps and
	// proc/driver/nvidia/capabilities; empty for DevRoot.
	DevRoot, CapsRoot string
	// Record is the file of the checkpoint.
	Record string
	// MPS is nil where there is none.
	MPS backend.Backend
	// Failpoints is nil but in crash tests.
	Failpoints *failpoint.Set
}

// Observer receives events for metrics. Its methods return at once and call nothing back.
type Observer interface {
	// Reserved tells of one grant; err is nil when it was held.
	Reserved(err error)
	// Placed reports that a pod's containers got their grants, and how long after the pod's first try on this node. The
	// reason of the last rejection is why; nil if there was none.
	Placed(namespace, profile string, why error, waited time.Duration)
	// Injected reports how long it took to find or make a container's grant and to write it to disk. A nil err means
	// that the container got its grant.
	Injected(took time.Duration, err error)
	// MIGRefused reports a request that got no MIG instance. The reason is one word, from the GPU that came nearest
	// to it.
	MIGRefused(reason string)
	// Activated tells of one activation and how long it took; err is nil when the attachment was taken.
	Activated(took time.Duration, err error)
	// Ended tells that an attachment ended.
	Ended()
	// Recovered tells that an attachment was found again at a restart.
	Recovered()
	// Limited reports one change of a grant's memory; err is nil when it is enforced.
	Limited(err error)
	// CapRestored tells that a cap was gone from the driver and was put back.
	CapRestored()
}

// Reports are the receivers of events.
type Reports struct {
	Log        *slog.Logger
	Observer   Observer
	Notify     *notify.Notifier
	Conditions *conditions.Set
	// Announce tells all who wait for a change of the node's state.
	Announce func()
}

// Core is what all parts of the life cycle share.
type Core struct {
	Host
	Reports
	Store     *store.Store
	Handles   *handles.Handles
	Driver    *gpudriver.Current
	Libkerf   *libkerf.Backend
	Lists     *lists.Lists
	Instances *instances.Reconciler
	Guard     *guard.Guard
	Watcher   *cgroup.Watcher
	Recovery  *recovery.State

	// queue has the grants that the Releaser looks at next.
	queue *work.Queue[ledger.GrantID]
	// verifyNow wakes the Caps (capacity 1: never lost, never queued).
	verifyNow chan struct{}
}

// ErrBusy marks a grant that is being activated or ended at this moment.
var ErrBusy = fmt.Errorf("being activated or ended: %w", sharing.ErrUnavailable)

// BusyPoll is how often who waits for a grant that is busy looks again.
const BusyPoll = 5 * time.Millisecond

// GroupOf is the cgroup of an attachment.
func (r *Core) GroupOf(a ledger.Attachment) cgroup.Group { return r.Cgroups.Group(a.Cgroup, a.Inode) }

// NotReady lists every reason why no grant is taken; it is empty when the node is ready.
func (r *Core) NotReady() []string {
	return append(r.Recovery.Get().Missing(), r.Conditions.Sentences(conditions.StopsGrants)...)
}

// Unsettled lists every reason why grants that exist cannot be served either.
func (r *Core) Unsettled() []string {
	return append(r.Recovery.Get().Missing(), r.Conditions.Unserved()...)
}

// Ready returns nil, or an error that wraps sharing.ErrUnavailable and names every reason.
func (r *Core) Ready() error { return Unready(r.NotReady()) }

// Unready is nil for no reason, else an error that wraps sharing.ErrUnavailable and names them.
func Unready(why []string) error {
	if len(why) > 0 {
		return fmt.Errorf("agent is not ready: %s: %w", JoinSentences(why), sharing.ErrUnavailable)
	}
	return nil
}

// JoinSentences leaves out what is empty.
func JoinSentences(s []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(s), func(s string) bool { return s == "" }), "; ")
}

// Numbers lists process ids for people.
func Numbers(n []int) string {
	s := make([]string, 0, len(n))
	for _, v := range n {
		s = append(s, strconv.Itoa(v))
	}
	return strings.Join(s, ", ")
}

// Wake asks the Releaser to look at all grants now.
func (r *Core) Wake() { r.queue.Add(append(r.Active(), reservations)...) }

// VerifySoon asks for a verification of all caps without waiting for it.
func (r *Core) VerifySoon() { poke(r.verifyNow) }

// VerifyDue reports whether a verification of all caps was asked for and has not begun.
func (r *Core) VerifyDue() bool { return len(r.verifyNow) > 0 }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SharedCapUsed reports whether another attachment shares the cap of a grant, and so may use what is booked for it.
func SharedCapUsed(l store.Reader, g ledger.Grant) bool {
	return g.SharedCap != nil && slices.ContainsFunc(l.SharedCapGrants(g.ID), func(id ledger.GrantID) bool {
		o, _ := l.Get(id)
		return id != g.ID && o.Active != nil
	})
}

// SharedCapBusy reports whether the grant, or one that shares its cap, is being activated, ended or changed.
func SharedCapBusy(l store.Reader, id ledger.GrantID) bool {
	return slices.ContainsFunc(l.SharedCapGrants(id), func(one ledger.GrantID) bool {
		g, _ := l.Get(one)
		return g.Work != ledger.NoWork
	})
}

// Owners are the grants to which the entries of the driver's lists may belong: those with an attachment.
func (r *Core) Owners(grants []ledger.Grant) []lists.Grant {
	out := make([]lists.Grant, 0, len(grants))
	for _, g := range grants {
		if g.Active == nil {
			continue
		}
		out = append(out, lists.Grant{
			Owner: listing.Owner(g.ID), Cgroup: g.Active.Cgroup, Procs: r.GroupOf(*g.Active).Procs,
			On: func(gpu sharing.GPURef) bool { return observe.Touches(g.Placement, gpu) },
		})
	}
	return out
}

// InstanceLost says why a grant's MIG instance does not hold it any more; empty while it does.
func (r *Core) InstanceLost(l store.Reader, c ledger.Reservation) string {
	if !instances.In(c.Placement) {
		return ""
	}
	return r.Instances.Lost(c.Placement[0], instances.Of(c.Placement[0], l.GPU))
}

// Active are the grants that have an attachment.
func (r *Core) Active() []ledger.GrantID {
	var ids []ledger.GrantID
	for _, g := range r.Store.Grants() {
		if g.Active != nil {
			ids = append(ids, g.ID)
		}
	}
	return ids
}

// Served are the grants that need a daemon of MPS.
func (r *Core) Served() (out []backend.Grant) {
	r.Store.Read(func(l store.Reader) {
		for _, g := range l.Grants() {
			// The containers of a pod's grant may have been made already, and not be activated yet.
			if backend.PropertiesOf(g.Backend).Served && (g.Active != nil || g.Owner.Pod()) {
				out = append(out, GrantOf(l, g))
			}
		}
	})
	return out
}

// Drop forgets a grant without an attachment; none of that id is no error.
func (r *Core) Drop(l *ledger.Ledger, id ledger.GrantID) error {
	g, ok := l.Get(id)
	if !ok {
		return nil
	}
	if err := l.Release(id); err != nil {
		return err
	}
	r.Notify.Audit.Grant(audit.Release, g.Reservation, 0, "", nil)
	r.Forget(l, g)
	return nil
}

// Forget drops the data that other packages keep for a grant that the ledger no longer has.
func (r *Core) Forget(l store.Reader, g ledger.Grant) {
	if r.Handles.Remove(g.ID) {
		g.Active = nil
		r.BackendOf(g, r.Driver.Get()).Release(GrantOf(l, g))
	}
	r.Guard.Drop(g.ID)
	r.Announce()
}

// empty reports whether no process is in the group, or whether it is gone: also where another has its name.
func empty(g cgroup.Group) (bool, error) {
	populated, err := g.Populated()
	if errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrStale) {
		return true, nil
	}
	return err == nil && !populated, err
}
