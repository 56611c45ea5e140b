// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/unplaced"
)

// ReservePod reserves placements for all containers of one pod that request a share: all of them, or none. A container
// that has its grant already keeps it, so a call may be repeated. An init container gets a separate grant only if no
// later container's grant covers its request.
//
// ErrUnavailable: the node grants nothing at present. ErrInvalid: a wrong request. *allocator.NoFit: no GPU has
// enough free capacity. Each names the container.
func (r *Reserver) ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error {
	made, start := 0, time.Now()
	err := r.withRoom(ctx, func(at *place.Node) []sharing.Request { return at.Unreserved(asks) }, func() (err error) {
		asks := place.InOrder(asks)
		return r.Store.UpdateLater(func(l *ledger.Ledger) (err error) {
			made, err = r.reservePod(l, asks)
			return err
		})
	})
	for range made {
		r.Observer.Reserved(nil)
	}
	listed := false
	if len(asks) > 0 {
		ref := asks[0].Ref
		err = r.Modes.Record(ref.PodUID, err, func() mode.Need { return r.podNeed(asks, start) })
		var waited unplaced.Wait
		if waited, listed = r.Unplaced.Record(ref, start, err); err == nil && made > 0 {
			r.Observer.Placed(ref.Namespace, asks[0].Request.Profile, waited.Err, time.Since(waited.Since))
		}
	}
	if err != nil {
		r.Observer.Reserved(err)
	}
	if made > 0 || listed {
		r.Announce()
	}
	return err
}

// withRoom grants, and takes back burst memory if necessary. needs are the requests that must fit.
func (r *Reserver) withRoom(ctx context.Context, needs func(*place.Node) []sharing.Request, try func() error) error {
	return r.BurstMemory.Reserve(ctx, try,
		func(inUse map[sharing.GPURef]bool) (missing map[sharing.GPURef]sharing.Bytes) {
			r.at(func(at *place.Node) { missing = at.Recall(needs(at), inUse) })
			return missing
		})
}

func (r *Reserver) reservePod(l *ledger.Ledger, asks []sharing.ContainerRequest) (int, error) {
	if err := r.PodsReady(); err != nil {
		return 0, err
	}
	var made []ledger.GrantID
	undo := func(err error) (int, error) {
		for _, id := range made {
			err = errors.Join(err, r.Drop(l, id))
		}
		return 0, err
	}
	for _, ask := range asks {
		keepPod(l, ask.Ref.PodUID)
		id, _, isNew, err := r.grantFor(l, ask)
		if err != nil {
			return undo(fmt.Errorf("container %q: %w", ask.Ref.Container, err))
		}
		if isNew {
			made = append(made, id)
		}
	}
	if len(made) > 0 {
		if err := place.PermitPod(r.Settings.Config(), l.Grants(), asks[0].Ref.PodUID, made); err != nil {
			return undo(err)
		}
	}
	return len(made), nil
}

// grantFor finds the grant that a container is to use, or makes it. part is set where the container requests
// less than the grant.
func (r *Reserver) grantFor(l *ledger.Ledger, ask sharing.ContainerRequest) (id ledger.GrantID, part sharing.Placement,
	isNew bool, err error) {
	if ask.ExistingOnly && sharing.OfClaims(ask.Requests) {
		id, isNew, err = claimGrant(r, l, ask)
		return id, nil, isNew, err
	}
	if g, ok := l.ByContainer(ask.Ref.PodUID, ask.Ref.Container); ok {
		switch {
		case slices.Equal(g.Requests, ask.Requests) && place.SharesAs(l, g, ask):
			l.CancelWithdrawal(g.ID, ledger.InitDone, ledger.PodRemoved, ledger.ClaimEnded)
			l.SetTerms(g.ID, func(t *ledger.Terms) { t.Priority = cmp.Or(ask.Priority, t.Priority) })
			return g.ID, nil, false, r.moveNear(l, g, ask)
		case g.Work != ledger.NoWork || g.Active != nil:
			return "", nil, false, fmt.Errorf("grant %q of it is in use with other amounts (%v): %w", g.ID,
				sharing.FormatResourceRequests(g.Requests), sharing.ErrConflict)
		}
		if err := r.Drop(l, g.ID); err != nil { // a grant made before kubelet admitted the container
			return "", nil, false, err
		}
	}
	if ask.ExistingOnly {
		return "", nil, false, fmt.Errorf("it shares a cap with another container, whose amount the API server has "+
			"not reported yet (and never does of a static pod): %w", sharing.ErrUnavailable)
	}
	if err := r.Settings.Config().Permit(ask.Request.Profile, ask.Ref.Namespace, time.Now()); err != nil {
		return "", nil, false, err
	}
	if ask.With != "" {
		id, err := r.reserveWith(l, ask)
		return id, nil, err == nil, err
	}
	if g, ok := ledger.CompanionOf(ask.Requests, l.Grants()); ok {
		id, err = reserveCompanion(r, l, g, ask)
		return id, nil, err == nil, err
	}
	req, err := r.Settings.Config().Resolve(r.Settings.Pool(), ask.Request)
	if err != nil {
		return "", nil, false, err
	}
	at := r.Place(l)
	if ask.Kind == sharing.ContainerInit {
		if id, part, ok := at.BurstManager(ask.Ref.PodUID, req); ok {
			l.CancelWithdrawal(id, ledger.InitDone)
			return id, part, false, nil
		}
	}
	placed, err := at.Container(ask, req)
	if err != nil {
		return "", nil, false, r.refused(err)
	}
	c := r.podGrant(ask, placed.Request, placed.Placement)
	c.Terms = at.Terms(c.Owner, placed.Enforced)
	return c.ID, nil, true, r.hold(l, c, ask)
}

// podGrant is the grant of a pod's container, with a new id.
func (r *Reserver) podGrant(ask sharing.ContainerRequest, req sharing.Request, p sharing.Placement) ledger.Reservation {
	return ledger.Reservation{
		ID: ledger.GrantID(r.NewID()), Request: req, Placement: p,
		Owner: ledger.Owner{PodUID: ask.Ref.PodUID, Container: ask.Ref.Container, Namespace: ask.Ref.Namespace,
			PodName: ask.Ref.Pod},
	}
}

// hold reserves a container's grant.
func (r *Reserver) hold(l *ledger.Ledger, c ledger.Reservation, ask sharing.ContainerRequest) error {
	c.Kind, c.Requests, c.Priority = ask.Kind, slices.Clone(ask.Requests), ask.Priority
	c.Claims = slices.Clone(ask.Claims)
	if err := l.Reserve(c); err != nil {
		return err
	}
	r.Handles.Add(c.ID, nil)
	r.Notify.Audit.Grant(audit.Reserve, c, c.Backend, c.LevelReason, nil)
	r.Log.Info("reserved grant", "grant", c.ID, "pod", ask.Ref.Namespace+"/"+ask.Ref.Pod, "container",
		ask.Ref.Container,
		"asks", sharing.FormatResourceRequests(ask.Requests),
		"shares_cap_of", c.With, "level", c.Level.String(), "backend", c.Backend.String(), "gpus", c.Placement.GPUs())
	return nil
}

// PodRemoved tells that kubelet has forgotten a pod, or that none of its containers starts again: its grants end
// once nothing uses them.
func (r *Reserver) PodRemoved(uid string) {
	listed := false
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		for _, id := range l.ByPod(uid) {
			l.Withdraw(id, ledger.PodRemoved)
		}
		listed = r.Unplaced.Forget(uid)
		r.Modes.Forget(uid)
		return nil
	})
	if listed {
		r.Announce()
	}
	r.Wake()
}

// keepPod takes back that a pod is gone: one of its containers is to start.
func keepPod(l *ledger.Ledger, uid string) {
	for _, id := range l.ByPod(uid) {
		l.CancelWithdrawal(id, ledger.PodRemoved)
	}
}

// PodGrants names every container that a pod's grant is held for, for who asks whether the pods still are.
func (r *Reserver) PodGrants() []sharing.ContainerRef {
	return place.PodContainers(r.Store.Grants())
}

// KnownPods is PodGrants, and one container of each pod that waits for room.
func (r *Reserver) KnownPods() []sharing.ContainerRef {
	out := r.PodGrants()
	for _, p := range r.Unplaced.List() {
		out = append(out, p.Ref)
	}
	return out
}

// PodsNotReady lists every reason why no pod's container gets a grant; it is empty when they do.
func (r *Reserver) PodsNotReady() []string {
	return append(r.NotReady(), r.Conditions.Sentences(conditions.StopsPods)...)
}

// PodsReady returns nil, or why no container of a pod gets a grant.
func (r *Reserver) PodsReady() error { return Unready(r.PodsNotReady()) }

// reserveWith makes the grant of a container that shares the cap of another of its pod.
func (r *Reserver) reserveWith(l *ledger.Ledger, ask sharing.ContainerRequest) (ledger.GrantID, error) {
	leader, ok := l.ByContainer(ask.Ref.PodUID, ask.With)
	if !ok {
		return "", fmt.Errorf("container %q, whose cap it shares, has no grant yet: %w", ask.With,
			sharing.ErrUnavailable)
	}
	req, err := r.Settings.Config().Resolve(r.Settings.Pool(), ask.Request)
	if err != nil {
		return "", err
	}
	c := r.podGrant(ask, req, place.PartOn(req, leader.Placement, l.GPU))
	c.With, c.Terms = leader.ID, leader.Terms
	return c.ID, r.hold(l, c, ask)
}
