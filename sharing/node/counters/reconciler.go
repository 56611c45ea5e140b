// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package counters corrects what programs count in the regions of libkerf by what the driver lists.
package counters

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// Every is the interval of corrections: what a killed process held is free within a second.
	Every = 250 * time.Millisecond
	// deadline bounds one reading of the process list of a GPU.
	deadline = 500 * time.Millisecond
)

// Backend corrects the counters of grants.
type Backend interface {
	Upkeep(ctx context.Context, grants []libkerf.Attachment, ask func([]sharing.GPURef) []lists.Observation) (
		found []libkerf.Finding, lost bool)
}

// Node is the node whose programs count.
type Node interface {
	View() View
	// Compare compares what a grant holds of each GPU with its cap. It reports whether its level changes by that.
	Compare(id ledger.GrantID, holds map[sharing.GPURef]sharing.Bytes) (changed bool)
	// Uncounted counts a process that uses a GPU without the library that enforces its grant.
	Uncounted()
}

// View is what a Reconciler sees of the node, at one moment.
type View struct {
	// Driver is nil while no driver answers.
	Driver lists.Driver
	// Grants are those whose programs count. Those that share a cap are one. Owners are all active grants.
	Grants []libkerf.Attachment
	Owners []lists.Grant
}

// Reconciler corrects counters, and shows what it finds.
type Reconciler struct {
	Log        *slog.Logger
	Backend    Backend
	Lists      *lists.Lists
	Conditions *conditions.Set
	Node       Node
	// Announce reports a change of the node.
	Announce func()
}

// Run corrects until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	t := time.NewTicker(Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		r.Reconcile(ctx)
	}
}

// Reconcile corrects the counters once.
func (r *Reconciler) Reconcile(ctx context.Context) {
	v := r.Node.View()
	if v.Driver == nil {
		v.Driver = noDriver{}
	}
	found, changed := r.Backend.Upkeep(ctx, v.Grants, func(gpus []sharing.GPURef) []lists.Observation {
		return r.Lists.Attribute(r.Lists.QueryAll(ctx, v.Driver, gpus, deadline), v.Owners)
	})
	there := map[string]string{}
	for _, g := range v.Grants {
		there[g.ID] = g.ID
	}
	r.Conditions.Retain(conditions.Uncounted, there) // a grant may have ended while its counters were corrected
	r.Conditions.Retain(conditions.Rejected, there)
	for _, f := range found {
		r.show(f)
		changed = r.Node.Compare(ledger.GrantID(f.ID), f.Used) || changed
	}
	if changed {
		r.Announce()
	}
}

// show shows what is wrong with a grant whose programs count.
func (r *Reconciler) show(f libkerf.Finding) {
	uncounted, rejected := "", ""
	if f.Uncounted != "" {
		uncounted = fmt.Sprintf("grant %s: %s", f.ID, f.Uncounted)
	}
	if f.Rejected {
		rejected = fmt.Sprintf(
			"grant %s: its programs request functions that allocate memory and that this version "+
				"of Kerf does not know;"+
				" libkerf rejects their calls; update Kerf", f.ID)
	}
	for range f.New {
		r.Node.Uncounted()
	}
	r.Conditions.SetOf(conditions.Uncounted, f.ID, uncounted)
	if r.Conditions.SetOf(conditions.Rejected, f.ID, rejected) {
		r.Log.Warn("programs requested functions that libkerf does not know", "grant", f.ID)
	}
}

// noDriver is a driver that does not answer.
type noDriver struct{}

func (noDriver) Processes(context.Context, sharing.GPURef) ([]lists.Use, error) {
	return nil, fmt.Errorf("no driver answers: %w", sharing.ErrUnavailable)
}
