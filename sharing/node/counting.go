// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/counters"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// countedNode is the node as package counters sees it.
type countedNode struct{ r *Runtime }

// newCounters makes what corrects the counters of programs that count.
func newCounters(r *Runtime) *counters.Reconciler {
	return &counters.Reconciler{
		Log: r.Log, Backend: r.Libkerf, Lists: r.sampler.Lists, Conditions: r.Conditions, Node: countedNode{r},
		Announce: r.changed.announce,
	}
}

// View implements counters.Node.
func (n countedNode) View() counters.View {
	grants := n.r.Store.Grants()
	v := counters.View{Owners: n.r.Owners(grants)}
	v.Grants = n.attachments(grants, v.Owners)
	if att := n.r.Driver.Get(); att != nil {
		v.Driver = att.Driver
	}
	return v
}

// Compare implements counters.Node.
func (n countedNode) Compare(id ledger.GrantID, holds map[sharing.GPURef]sharing.Bytes) (changed bool) {
	n.r.Store.Read(func(l store.Reader) {
		changed = n.r.Guard.Compare(sharersOf(l, id), guardNode(n).contexts(l), holds)
	})
	return changed
}

// Uncounted implements counters.Node.
func (n countedNode) Uncounted() { n.r.opt.Observer.Uncounted() }

// attachments are those whose programs count in a region, those with a shared cap as one.
func (n countedNode) attachments(grants []ledger.Grant, owners []lists.Grant) []libkerf.Attachment {
	var all []libkerf.Attachment
	of := map[ledger.GrantID]int{}
	for _, g := range grants {
		if g.Active == nil || !n.r.Libkerf.Whole(string(g.ID)) {
			continue
		}
		class := int(n.r.settings.PriorityOf(g))
		i, shared := of[g.Root()]
		if !shared {
			i = len(all)
			of[g.Root()] = i
			l := libkerf.Attachment{ID: string(g.ID), Caps: g.Caps(), Priority: class}
			for _, f := range g.Placement {
				l.GPUs = append(l.GPUs, f.GPU)
			}
			all = append(all, l)
		}
		l := &all[i]
		l.Groups, l.Priority = append(l.Groups, n.r.GroupOf(*g.Active)), max(l.Priority, class)
		for _, o := range owners {
			if o.Owner == listing.Owner(g.ID) {
				l.Owners = append(l.Owners, o)
			}
		}
	}
	return all
}

// rules are the rules of this moment for regions.
func (n countedNode) rules() libkerf.Rules {
	_, gpus := n.r.Store.View()
	return libkerf.Rules{RejectManaged: n.r.settings.Pool().ManagedMemory == config.ManagedReject,
		Contexts: contextSizes(n.r, gpus)}
}

// watches reports whether the reactive backend can check the grant: the backends of all its GPUs include it, and the
// driver lists the processes there.
func watches(l store.Reader, r *Runtime, g ledger.Grant) bool {
	att := r.Driver.Get()
	return !slices.ContainsFunc(g.Placement, func(f sharing.Share) bool {
		blind := att != nil && att.Levels[f.GPU].Blind() // the driver does not list its processes to this agent
		return blind || !choice.Watched(r.settings.BackendsOn(gpuOf(l, f.GPU), l.Grants(), g.Request.Profile))
	})
}

// timeHost tells libkerf whose time counts.
type timeHost struct{ r *Runtime }

// Changes implements libkerf.TimeHost.
func (t timeHost) Changes() uint64 { return t.r.changed.seen() }

// Changed implements libkerf.TimeHost.
func (t timeHost) Changed() <-chan struct{} { return t.r.changed.wait() }

// Timed implements libkerf.TimeHost.
func (t timeHost) Timed() (attachments []libkerf.Attachment, strict bool) {
	return countedNode(t).attachments(t.r.Store.Grants(), nil),
		t.r.settings.Pool().ComputePolicy == config.ComputeStrict
}

// ProcessTime implements libkerf.TimeHost.
func (t timeHost) ProcessTime(ctx context.Context, gpu sharing.GPURef, since time.Time) (sharing.TimeUse, error) {
	att := t.r.Driver.Get()
	if att == nil {
		return sharing.TimeUse{}, fmt.Errorf("no driver answers: %w", sharing.ErrUnavailable)
	}
	return att.Driver.ProcessTime(ctx, gpu, since)
}

// Ended implements libkerf.TimeHost.
func (t timeHost) Ended(pid int) bool {
	_, err := t.r.opt.Cgroups.OfProcess(pid)
	return errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrStale)
}
