// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

const (
	// cutEvery is how often it is looked whether a container's instance is to be cut, even if nothing asks for it.
	cutEvery = time.Second
	// cutPause is how long it is until a cut that failed is tried again; it doubles up to cutLast.
	cutPause = time.Second
	cutLast  = 15 * time.Second
	// cutDeadline bounds the cut of one instance, with what stands in its way.
	cutDeadline = 90 * time.Second
)

// cutting is how far the cut of a container's instance is.
type cutting struct {
	// busy is true while somebody works on it.
	busy bool
	// err is why it failed last, nil before.
	err error
	// again is when it is tried next; pause is what was waited for that.
	again time.Time
	pause time.Duration
}

// MIGNotice is what happened to the instance of a pod's container, for people.
type MIGNotice struct {
	// Container has it, or waits for it.
	Container sharing.ContainerRef
	GPU       sharing.GPU
	Instance  sharing.Instance
	// Took is how long it took, and Warm that nothing was cut: one that was free was taken.
	Took time.Duration
	Warm bool
	// Err is why there is none yet; it is tried again.
	Err error
}

// TellMIG registers f to be told of cuts for pods' containers. It returns at once, and TellMIG is called before Run.
func (r *Runtime) TellMIG(f func(ctx context.Context, n MIGNotice)) { r.tellMIG = f }

func (r *Runtime) noticeCut(ctx context.Context, c ledger.Claim, n MIGNotice) {
	if r.tellMIG == nil || !c.Owner.Pod() {
		return
	}
	f := c.Placement[0]
	r.mu.Lock()
	v, _ := r.ledger.GPU(f.GPU.Device())
	n.GPU, n.Instance = v.GPU, r.instanceOf(f)
	r.mu.Unlock()
	n.Container = sharing.ContainerRef{PodUID: c.Owner.PodUID, Namespace: c.Owner.Namespace, Pod: c.Owner.PodName, Container: c.Owner.Container}
	r.tellMIG(ctx, n)
}

// PendingCuts says whose instances are being cut for the first time, and which GPUs change their MIG mode for whom, for who
// would wait for them. One whose cut failed
// is not among them: that its container cannot start is told itself.
func (r *Runtime) PendingCuts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.modes.Pending()
	for _, g := range r.ledger.Grants() {
		if h := r.held[g.Claim.ID]; r.needsCut(g, h) && h.cut.err == nil {
			out = append(out, fmt.Sprintf("MIG instance %s is being cut for %s", instanceName(g.Claim.Placement[0]), holderName(g.Claim)))
		}
	}
	return out
}

// forContainer reports whether containers use the claim.
func forContainer(g ledger.Grant, h *holding) bool {
	return h != nil && (h.container || g.Claim.Owner.Pod())
}

// needsCut needs the lock.
func (r *Runtime) needsCut(g ledger.Grant, h *holding) bool {
	return forContainer(g, h) && isCut(g.Claim.Placement) && h.device.UUID == ""
}

// cutSoon asks for a look at what is to be cut or hidden.
func (r *Runtime) cutSoon() {
	select {
	case r.cutKick <- struct{}{}:
	default:
	}
}

// cutLoop cuts the instances of containers that were claimed, before anybody waits for them, and finds those again that
// were cut before this runtime started.
func (r *Runtime) cutLoop(ctx context.Context) error {
	var g errgroup.Group
	t := time.NewTicker(cutEvery)
	defer t.Stop()
	for {
		for _, id := range r.toCut(time.Now()) {
			g.Go(func() error { r.cutAhead(ctx, id); return nil })
		}
		r.hideMIG(ctx)
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-r.cutKick:
		case <-t.C:
		}
	}
}

// toCut are the claims that wait for their instances and are nobody's work; it makes them the caller's.
func (r *Runtime) toCut(now time.Time) []ledger.ClaimID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mig == nil || r.att == nil {
		return nil
	}
	var out []ledger.ClaimID
	for _, g := range r.ledger.Grants() {
		h := r.held[g.Claim.ID]
		if !forContainer(g, h) || !isCut(g.Claim.Placement) || h.cut.busy {
			continue
		}
		if g.Lease == nil && h.device.UUID != "" && r.instanceLost(g.Claim) != "" {
			h.device = sharing.MIGDevice{} // the next container gets another one at its place
		}
		if h.device.UUID == "" && !now.Before(h.cut.again) {
			h.cut.busy = true
			out = append(out, g.Claim.ID)
		}
	}
	return out
}

func (r *Runtime) cutAhead(ctx context.Context, id ledger.ClaimID) {
	ctx, cancel := context.WithTimeout(ctx, cutDeadline)
	defer cancel()
	r.endCut(id, r.cut(ctx, id))
}

// endCut notes how a cut ended. A claim that is gone meanwhile needs nothing: its instance is idle, and is given back.
func (r *Runtime) endCut(id ledger.ClaimID, err error) {
	r.mu.Lock()
	if h := r.held[id]; h != nil {
		h.cut.busy, h.cut.err = false, err
		if err != nil {
			h.cut.pause = min(max(2*h.cut.pause, cutPause), cutLast)
			h.cut.again = time.Now().Add(h.cut.pause)
		}
	}
	r.mu.Unlock()
	if err != nil {
		r.log.Warn("mig instance not cut", "claim", id, "error", err.Error())
	}
	r.changed.announce()
}

// awaitCut returns once the claim's instance can be given to a container, if it has one. The error says why it cannot be
// by the end of ctx, or why its cut failed.
func (r *Runtime) awaitCut(ctx context.Context, id ledger.ClaimID) error {
	r.cutSoon()
	for {
		changed := r.changed.wait()
		r.mu.Lock()
		g, ok := r.ledger.Get(id)
		h := r.held[id]
		waits := ok && r.needsCut(g, h)
		var err error
		if waits && !h.cut.busy {
			err = h.cut.err
		}
		r.mu.Unlock()
		if !waits || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("its MIG instance %s is still being cut: %w", instanceName(g.Claim.Placement[0]), sharing.ErrUnavailable)
		case <-changed:
		}
	}
}
