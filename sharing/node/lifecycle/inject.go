// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/record"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// Inject binds a container instance, which is about to be made, to its grant, and returns what it gets. The
// grant is made here if it was not at the sandbox's creation. A call for the same container id gives the same
// answer again. Where the grant's last attachment is just ending, it waits for that up to busyPatience: a container
// runtime takes an error for the container's. Errors: those of ReservePod.
func (r *Injector) Inject(ctx context.Context, ask sharing.ContainerRequest, containerID string) (sharing.Injection,
	error) {
	start := time.Now()
	in, err := r.inject(ctx, ask, containerID)
	took := time.Since(start)
	r.Observer.Injected(took, err)
	if err != nil {
		return in, err
	}
	return in, r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if id, ok := l.ByContainerID(containerID); ok {
			l.SetChecks(id, containerID, func(c *ledger.Checks) { c.InjectTook = took })
		}
		return nil
	})
}

func (r *Injector) inject(ctx context.Context, ask sharing.ContainerRequest, containerID string) (sharing.Injection,
	error) {
	var id ledger.GrantID
	isNew := false
	needs := func(at *place.Node) []sharing.Request { return at.Unreserved([]sharing.ContainerRequest{ask}) }
	err := r.reserver.withRoom(ctx, needs, func() (err error) {
		id, isNew, err = r.bindPatiently(ctx, ask, containerID)
		return err
	})
	if isNew || err != nil {
		r.Observer.Reserved(err)
	}
	if err != nil {
		return sharing.Injection{}, fmt.Errorf("container %q: %w", ask.Ref.Container, err)
	}
	if err := r.Instances.Await(ctx, id); err != nil {
		return sharing.Injection{}, fmt.Errorf("container %q: %w", ask.Ref.Container, err)
	}
	if err := r.Prepare(ctx, id); err != nil {
		return sharing.Injection{}, err
	}
	// On disk before the container exists: an agent that is killed now finds it again, with its hook waiting.
	if err := r.Store.Save(); err != nil {
		return sharing.Injection{}, err
	}
	if err := r.Failpoints.Eval("inject-after-record"); err != nil {
		return sharing.Injection{}, err
	}
	if isNew {
		r.Announce()
	}
	return r.InjectionOf(id)
}

// bindPatiently is bind, again while the grant is busy.
func (r *Injector) bindPatiently(ctx context.Context, ask sharing.ContainerRequest, containerID string) (ledger.GrantID,
	bool, error) {
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	for {
		var id ledger.GrantID
		var isNew bool
		err := r.Store.UpdateLater(func(l *ledger.Ledger) (err error) {
			id, isNew, err = r.bind(l, ask, containerID)
			return err
		})
		if !errors.Is(err, ErrBusy) {
			return id, isNew, err
		}
		select {
		case <-ctx.Done():
			return "", false, err
		case <-time.After(BusyPoll):
		}
	}
}

// bind finds or makes the grant, and notes that the container is its next user.
func (r *Injector) bind(l *ledger.Ledger, ask sharing.ContainerRequest, containerID string) (ledger.GrantID, bool,
	error) {
	if id, ok := l.ByContainerID(containerID); ok {
		return id, false, nil
	}
	if err := r.reserver.PodsReady(); err != nil {
		return "", false, err
	}
	keepPod(l, ask.Ref.PodUID)
	if ask.Kind == sharing.ContainerApp {
		if err := r.endInitGrants(l, ask.Ref.PodUID); err != nil {
			return "", false, err
		}
	}
	id, part, isNew, err := r.reserver.grantFor(l, ask)
	if err != nil {
		return "", false, err
	}
	if g, _ := l.Get(id); g.Work != ledger.NoWork {
		return "", false, fmt.Errorf("grant %q is %w", id, ErrBusy)
	}
	next := ledger.Attachment{ContainerID: containerID, Container: ask.Ref.Container,
		Requests: slices.Clone(ask.Requests),
		Part:     part}
	return id, isNew, l.Assign(id, next)
}

// endInitGrants drops the grants of a pod's init containers: they have run once an app container is made. One
// whose attachment has not ended yet is dropped when it has. That of a ResourceClaim stays while it is prepared.
func (r *Injector) endInitGrants(l *ledger.Ledger, podUID string) error {
	for _, id := range l.ByPod(podUID) {
		g, _ := l.Get(id)
		if g.Kind != sharing.ContainerInit || sharing.OfClaims(g.Requests) {
			continue
		}
		if g.Work != ledger.NoWork || g.Active != nil {
			l.Withdraw(g.ID, ledger.InitDone)
			continue
		}
		if err := r.Drop(l, g.ID); err != nil {
			return err
		}
	}
	return nil
}

// InjectionOf is what the container that uses a grant gets. ErrNotFound for an unknown grant.
func (r *Injector) InjectionOf(id ledger.GrantID) (in sharing.Injection, err error) {
	r.Store.Read(func(l store.Reader) { in, err = r.injectionOf(l, id) })
	return in, err
}

func (r *Injector) injectionOf(l store.Reader, id ledger.GrantID) (sharing.Injection, error) {
	g, ok := l.Get(id)
	if !ok {
		return sharing.Injection{}, fmt.Errorf("grant %q: %w", id, sharing.ErrNotFound)
	}
	u := g.Newest()
	rec := store.Recorded(g.Reservation, u)
	rec.Cgroup, rec.Inode = "", 0
	note, err := record.EncodeGrant(rec)
	if err != nil {
		return sharing.Injection{}, err
	}
	in := sharing.Injection{Grant: string(id), Placement: g.Granted().Clone(), Level: g.Level,
		Requests: slices.Clone(g.Requests), Annotation: note}
	if u.ContainerID != "" {
		in.Requests = slices.Clone(u.Requests)
		if len(u.Part) > 0 {
			in.Placement = u.Part.Clone()
		}
	}
	if instances.In(in.Placement) {
		if in.Device = r.Instances.Device(id); in.Device.UUID == "" {
			return sharing.Injection{}, fmt.Errorf("grant %q: its MIG instance %s is not created yet: %w", id,
				instances.Name(in.Placement[0]), sharing.ErrUnavailable)
		}
	}
	of := GrantOf(l, g)
	of.Contained = true
	more, err := r.BackendOf(g, r.Driver.Get()).Injection(of, in.Placement)
	if err != nil {
		return sharing.Injection{}, err
	}
	in.Env, in.Mounts = place.Env(id, in.Placement, in.Level), more.Mounts
	maps.Copy(in.Env, more.Env)
	return in, nil
}

// byBackend has the backend of a grant do something before programs of the grant run. sharing.ErrStale if the grant
// ends meanwhile.
func (r *Core) byBackend(id ledger.GrantID, do func(backend.Backend, backend.Grant) error) error {
	g, ok := r.Store.Get(id)
	if !ok {
		return nil
	}
	b, of := r.Enforcer(g, r.Driver.Get())
	err := do(b, of)
	if err != nil {
		return err
	}
	r.Store.Read(func(l store.Reader) {
		if _, ok := l.Get(id); !ok {
			b.Release(of)
			err = fmt.Errorf("grant %q ended: %w", id, sharing.ErrStale)
		}
	})
	return err
}

// Prepare makes what the containers of a grant are to be made with.
func (r *Core) Prepare(ctx context.Context, id ledger.GrantID) error {
	var inForce sharing.Placement
	r.Store.Read(func(l store.Reader) {
		g, _ := l.Get(id)
		switch u := g.Newest(); {
		case len(u.Part) > 0:
			inForce = u.Part
		case !SharedCapUsed(l, g): // The reactive backend changes a shared cap in use.
			inForce = g.Granted()
		}
	})
	return r.byBackend(id, func(b backend.Backend, of backend.Grant) error { return b.Prepare(ctx, of, inForce) })
}

// enforce has the backend of a grant enforce its caps for programs that start next.
func (r *Core) enforce(ctx context.Context, id ledger.GrantID, inForce sharing.Placement) error {
	return r.byBackend(id, func(b backend.Backend, of backend.Grant) error { return b.Enforce(ctx, of, inForce) })
}
