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
	"github.com/kerf-gpu/kerf/sharing/node/store"
	"github.com/kerf-gpu/kerf/sharing/node/unplaced"
)

// ClaimPod reserves placements for all containers of one pod that request a share: all of them, or none. A container
// that has its claim already keeps it, so a call may be repeated. An init container gets a separate claim only if no
// later container's claim covers its request.
//
// ErrUnavailable: the node grants nothing at present. ErrInvalid: a wrong request. *allocator.NoFit: no GPU has
// enough free capacity. Each names the container.
func (r *Reserver) ClaimPod(ctx context.Context, asks []sharing.ContainerAsk) error {
	made, start := 0, time.Now()
	err := r.withRoom(ctx, func(at *place.Node) []sharing.Request { return at.Unclaimed(asks) }, func() (err error) {
		asks := inOrder(asks)
		return r.Store.Note(func(l *ledger.Ledger) (err error) {
			made, err = r.claimPod(l, asks)
			return err
		})
	})
	for range made {
		r.Observer.Claimed(nil)
	}
	listed := false
	if len(asks) > 0 {
		ref := asks[0].Ref
		err = r.Modes.Note(ref.PodUID, err, func() mode.Need { return r.podNeed(asks, start) })
		var waited unplaced.Wait
		if waited, listed = r.Unplaced.Note(ref, start, err); err == nil && made > 0 {
			r.Observer.Placed(ref.Namespace, asks[0].Request.Profile, waited.Why, time.Since(waited.Since))
		}
	}
	if err != nil {
		r.Observer.Claimed(err)
	}
	if made > 0 || listed {
		r.Announce()
	}
	return err
}

// withRoom claims, and takes back burst memory if necessary. needs are the requests that must fit.
func (r *Reserver) withRoom(ctx context.Context, needs func(*place.Node) []sharing.Request, try func() error) error {
	return r.Loans.Claim(ctx, try, func(inUse map[sharing.GPURef]bool) (missing map[sharing.GPURef]sharing.Bytes) {
		r.at(func(at *place.Node) { missing = at.Recall(needs(at), inUse) })
		return missing
	})
}

// inOrder sorts containers that run at the same time first, and among them those with another's cap last. The larger
// init containers follow, so that a later one finds a claim that it may use.
func inOrder(asks []sharing.ContainerAsk) []sharing.ContainerAsk {
	asks = slices.Clone(asks)
	rank := func(a sharing.ContainerAsk) int {
		switch {
		case a.Kind == sharing.ContainerInit:
			return 2
		case a.With != "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(asks, func(a, b sharing.ContainerAsk) int {
		x, y := a.Request, b.Request
		if a.Kind != sharing.ContainerInit || b.Kind != sharing.ContainerInit {
			return rank(a) - rank(b)
		}
		return cmp.Or(cmp.Compare(y.GPUs, x.GPUs), cmp.Compare(y.Memory, x.Memory), cmp.Compare(y.Percent, x.Percent))
	})
	return asks
}

func (r *Reserver) claimPod(l *ledger.Ledger, asks []sharing.ContainerAsk) (int, error) {
	if err := r.PodsReady(); err != nil {
		return 0, err
	}
	var made []ledger.ClaimID
	undo := func(err error) (int, error) {
		for _, id := range made {
			err = errors.Join(err, r.Drop(l, id))
		}
		return 0, err
	}
	for _, ask := range asks {
		keepPod(l, ask.Ref.PodUID)
		id, _, isNew, err := r.claimFor(l, ask)
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

// claimFor finds the claim that a container is to use, or makes it. part is set where the container asks for
// less than the claim.
func (r *Reserver) claimFor(l *ledger.Ledger, ask sharing.ContainerAsk) (id ledger.ClaimID, part sharing.Placement,
	isNew bool, err error) {
	if g, ok := l.ByContainer(ask.Ref.PodUID, ask.Ref.Container); ok {
		switch {
		case slices.Equal(g.Claim.Asks, ask.Asks) && sharesAs(l, g, ask):
			l.Keep(g.Claim.ID, ledger.InitDone, ledger.PodGone)
			l.SetTerms(g.Claim.ID, func(t *ledger.Terms) { t.Priority = cmp.Or(ask.Priority, t.Priority) })
			return g.Claim.ID, nil, false, r.moveNear(l, g, ask)
		case g.Work != ledger.NoWork || g.Lease != nil:
			return "", nil, false, fmt.Errorf("claim %q of it is in use with other amounts (%v): %w", g.Claim.ID,
				sharing.AskStrings(g.Claim.Asks), sharing.ErrConflict)
		}
		if err := r.Drop(l, g.Claim.ID); err != nil { // a claim made before kubelet admitted the container
			return "", nil, false, err
		}
	}
	if ask.HeldOnly {
		return "", nil, false, fmt.Errorf("it shares a cap with another container, whose amount the API server has "+
			"not reported yet (and never does of a static pod): %w", sharing.ErrUnavailable)
	}
	if err := r.Settings.Config().Permit(ask.Request.Profile, ask.Ref.Namespace, time.Now()); err != nil {
		return "", nil, false, err
	}
	if ask.With != "" {
		id, err := r.claimWith(l, ask)
		return id, nil, err == nil, err
	}
	req, err := r.Settings.Config().Resolve(r.Settings.Pool(), ask.Request)
	if err != nil {
		return "", nil, false, err
	}
	at := r.Place(l)
	if ask.Kind == sharing.ContainerInit {
		if id, part, ok := at.Lender(ask.Ref.PodUID, req); ok {
			l.Keep(id, ledger.InitDone)
			return id, part, false, nil
		}
	}
	placed, err := at.Container(ask, req)
	if err != nil {
		return "", nil, false, r.refused(err)
	}
	c := r.podClaim(ask, placed.Request, placed.Placement)
	c.Terms = at.Terms(c.Owner, placed.Enforced)
	return c.ID, nil, true, r.hold(l, c, ask)
}

// podClaim is the claim of a pod's container, with a new id.
func (r *Reserver) podClaim(ask sharing.ContainerAsk, req sharing.Request, p sharing.Placement) ledger.Claim {
	return ledger.Claim{
		ID: ledger.ClaimID(r.NewID()), Request: req, Placement: p,
		Owner: ledger.Owner{PodUID: ask.Ref.PodUID, Container: ask.Ref.Container, Namespace: ask.Ref.Namespace,
			PodName: ask.Ref.Pod},
	}
}

// hold reserves a container's claim.
func (r *Reserver) hold(l *ledger.Ledger, c ledger.Claim, ask sharing.ContainerAsk) error {
	c.Kind, c.Asks, c.Priority = ask.Kind, slices.Clone(ask.Asks), ask.Priority
	if err := l.Claim(c); err != nil {
		return err
	}
	r.Handles.Add(c.ID, nil)
	r.Notify.Audit.Claim(audit.Reserve, c, c.Backend, c.LevelReason, nil)
	r.Log.Info("reserved grant", "grant", c.ID, "pod", ask.Ref.Namespace+"/"+ask.Ref.Pod, "container",
		ask.Ref.Container,
		"asks", sharing.AskStrings(ask.Asks),
		"shares_cap_of", c.With, "level", c.Level.String(), "backend", c.Backend.String(), "gpus", c.Placement.GPUs())
	return nil
}

// PodGone tells that kubelet has forgotten a pod, or that none of its containers starts again: its claims end
// once nothing uses them.
func (r *Reserver) PodGone(uid string) {
	listed := false
	_ = r.Store.Note(func(l *ledger.Ledger) error {
		for _, g := range l.Grants() {
			if uid != "" && g.Claim.Owner.PodUID == uid {
				l.Withdraw(g.Claim.ID, ledger.PodGone)
			}
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
	for _, g := range l.Grants() {
		if g.Claim.Owner.PodUID == uid {
			l.Keep(g.Claim.ID, ledger.PodGone)
		}
	}
}

// PodClaims names every container that a pod's claim is held for, for who asks whether the pods still are.
func (r *Reserver) PodClaims() []sharing.ContainerRef {
	var out []sharing.ContainerRef
	for _, g := range r.Store.Grants() {
		if o := g.Claim.Owner; o.Pod() {
			out = append(out, sharing.ContainerRef{PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName,
				Container: o.Container})
		}
	}
	return out
}

// KnownPods is PodClaims, and one container of each pod that waits for room.
func (r *Reserver) KnownPods() []sharing.ContainerRef {
	out := r.PodClaims()
	for _, p := range r.Unplaced.List() {
		out = append(out, p.Ref)
	}
	return out
}

// Holders names, for each GPU, the containers of pods with a share of it.
func (r *Reserver) Holders() map[sharing.GPURef][]sharing.ContainerRef {
	out := map[sharing.GPURef][]sharing.ContainerRef{}
	for _, g := range r.Store.Grants() {
		o := g.Claim.Owner
		if !o.Pod() {
			continue
		}
		for _, f := range g.Claim.Placement {
			out[f.GPU] = append(out[f.GPU], sharing.ContainerRef{PodUID: o.PodUID, Namespace: o.Namespace,
				Pod: o.PodName, Container: o.Container})
		}
	}
	return out
}

// PodsNotReady lists every reason why no pod's container gets a grant; it is empty when they do.
func (r *Reserver) PodsNotReady() []string {
	return append(r.NotReady(), r.Conditions.Sentences(conditions.StopsPods)...)
}

// PodsReady returns nil, or why no container of a pod gets a grant.
func (r *Reserver) PodsReady() error { return Unready(r.PodsNotReady()) }

// claimWith makes the claim of a container that shares the cap of another of its pod.
func (r *Reserver) claimWith(l *ledger.Ledger, ask sharing.ContainerAsk) (ledger.ClaimID, error) {
	leader, ok := l.ByContainer(ask.Ref.PodUID, ask.With)
	if !ok {
		return "", fmt.Errorf("container %q, whose cap it shares, has no claim yet: %w", ask.With,
			sharing.ErrUnavailable)
	}
	req, err := r.Settings.Config().Resolve(r.Settings.Pool(), ask.Request)
	if err != nil {
		return "", err
	}
	c := r.podClaim(ask, req, place.PartOn(req, leader.Claim.Placement, l.GPU))
	c.With, c.Terms = leader.Claim.ID, leader.Claim.Terms
	return c.ID, r.hold(l, c, ask)
}

// sharesAs reports whether a claim shares, or does not share, the cap that the container is to share now.
func sharesAs(l store.Reader, g ledger.Grant, ask sharing.ContainerAsk) bool {
	if ask.With == "" {
		return g.Claim.With == ""
	}
	leader, ok := l.ByContainer(ask.Ref.PodUID, ask.With)
	return ok && g.Claim.With == leader.Claim.ID
}
