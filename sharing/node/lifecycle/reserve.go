// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// Reserve holds a placement for the calling process and returns its id. Errors: ErrUnavailable when nothing
// is granted at present, ErrInvalid for a wrong request, ErrConflict for a taken name, *allocator.NoFit when
// no GPU has room.
func (r *Reserver) Reserve(ctx context.Context, peer Peer, name string, asked sharing.Request) (ledger.GrantID, error) {
	return r.reserveAs(ctx, peer, name, asked, r.mayPreload(peer), nil)
}

// ReserveForContainer is Grant for a container that is no pod's and that the calling process is about to create. The
// hook activates it, by the grant's id. Until then the grant is reserved while the calling process lives or, with a
// hold of more than 0, for that long.
func (r *Reserver) ReserveForContainer(ctx context.Context, peer Peer, name string, asked sharing.Request,
	hold time.Duration) (ledger.GrantID, error) {
	if peer.UID != 0 {
		return "", fmt.Errorf("containers are made by root, and uid %d requests it: %w", peer.UID, sharing.ErrDenied)
	}
	id, err := r.reserveAs(ctx, peer, name, asked, choice.ContainersByMPS(), func(c *ledger.Reservation,
		req sharing.Request) {
		c.Requests, c.Standalone = asksOf(req), true
		if hold > 0 {
			c.Until = time.Now().Add(hold)
		}
	})
	if err != nil {
		return "", err
	}
	if err := r.Prepare(ctx, id); err != nil {
		return "", errors.Join(err, r.release(peer, id))
	}
	return id, nil
}

// mayPreload is why libkerf cannot enforce the cap of a process. It needs a private mount namespace and a folder of one
// user, which the agent must be able to enter.
func (r *Reserver) mayPreload(peer Peer) choice.Without {
	may, err := process.MayMount(peer.PID)
	override := peer.UID == 0
	if err == nil && !override {
		override, err = process.MayOverride(os.Getpid())
	}
	switch {
	case err != nil:
		return choice.Libkerf(choice.Support{Reason: "cannot check whether the process may mount: " +
			err.Error()})
	case !may:
		return choice.Libkerf(choice.Support{
			Answer: choice.NotSupported, Reason: "the process has no CAP_SYS_ADMIN, which a private mount needs",
			Remedy: "run as root, or in a container",
		})
	case !override:
		return choice.Libkerf(choice.Support{
			Answer: choice.NotSupported,
			Reason: "the agent has no CAP_DAC_OVERRIDE, which the folder of another user needs",
			Remedy: "run as root, or in a container",
		})
	}
	return nil
}

// asksOf are the amounts of a request that an ask can name: whole GiB.
func asksOf(req sharing.Request) []sharing.ResourceRequest {
	limits := map[string]string{}
	if req.Kind == sharing.KindWhole {
		limits[sharing.ResourceGPU] = strconv.Itoa(req.GPUs)
	}
	if req.Memory%sharing.GiB == 0 {
		limits[sharing.ResourceMemory] = strconv.FormatUint(uint64(req.Memory/sharing.GiB), 10)
	}
	limits[sharing.ResourcePercent] = strconv.FormatUint(uint64(req.Percent), 10)
	return sharing.ResourceRequestsOf(limits)
}

func (r *Reserver) reserveAs(ctx context.Context, peer Peer, name string, asked sharing.Request, but choice.Without,
	mark func(*ledger.Reservation, sharing.Request)) (ledger.GrantID, error) {
	owner, err := process.OpenAt(peer.PID, peer.Start)
	if err != nil {
		return "", fmt.Errorf("grant for process %d: %w", peer.PID, err)
	}
	var id ledger.GrantID
	needs := func(at *place.Node) []sharing.Request { return at.Resolved(asked) }
	need := func() mode.Need {
		n := mode.Need{Who: fmt.Sprintf("process %d", peer.PID), Since: time.Now(), But: but}
		r.at(func(at *place.Node) { n.Requests = at.HardenedAll(needs(at)) })
		return n
	}
	err = r.Modes.Await(ctx, need, func() error {
		return r.withRoom(ctx, needs, func() error {
			id, err = r.grant(peer, owner, name, asked, but, mark)
			return err
		})
	})
	r.Observer.Reserved(err)
	if err != nil {
		owner.Close()
		r.Log.Info("rejected request for a grant", "pid", peer.PID, "uid", peer.UID, "reason", err.Error())
		return "", err
	}
	r.Announce()
	if err := r.Failpoints.Eval("mig-after-claim"); err != nil {
		return "", errors.Join(err, r.release(peer, id))
	}
	if err := r.Instances.Create(ctx, id); err != nil {
		return "", errors.Join(err, r.release(peer, id))
	}
	return id, nil
}

func (r *Reserver) grant(peer Peer, owner *process.Handle, name string, asked sharing.Request, but choice.Without,
	mark func(*ledger.Reservation, sharing.Request)) (id ledger.GrantID, err error) {
	if name != "" {
		if err := sharing.ValidateName("name", name); err != nil {
			return "", err
		}
	}
	err = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		c, err := r.grantOf(l, peer, asked, but)
		if err != nil {
			return err
		}
		c.Name, id = name, c.ID
		if mark != nil {
			mark(&c, c.Request)
		}
		if err := l.Reserve(c); err != nil {
			return err
		}
		if mark != nil && instances.In(c.Placement) {
			r.Instances.Begin(id)
		}
		r.Handles.Add(id, owner)
		r.Notify.Audit.Grant(audit.Reserve, c, c.Backend, c.LevelReason, nil)
		r.Log.Info("reserved grant", "grant", id, "name", name, "pid", peer.PID, "uid", peer.UID, "level",
			c.Level.String(),
			"backend", c.Backend.String(), "shares", len(c.Placement))
		return nil
	})
	return id, err
}

// grantOf places the grant of a process.
func (r *Reserver) grantOf(l store.Reader, peer Peer, asked sharing.Request, but choice.Without) (c ledger.Reservation,
	err error) {
	if err := r.Ready(); err != nil {
		return c, err
	}
	req, err := r.Settings.Config().Resolve(r.Settings.Pool(), asked)
	if err != nil {
		return c, err
	}
	if err := r.Settings.Config().Permit(req.Profile, "", time.Now()); err != nil {
		return c, err
	}
	for id, waiting := range r.Handles.Owners() {
		g, _ := l.Get(id)
		if g.Active == nil && g.Next == nil && !g.Standalone && waiting.PID() == peer.PID && waiting.Alive() {
			return c, fmt.Errorf("process %d has grant %q already; activate or release it first: %w", peer.PID, id,
				sharing.ErrConflict)
		}
	}
	at := r.Place(l)
	placed, err := at.Process(peer.UID, asked, req, but)
	if err != nil {
		return c, r.refused(err)
	}
	c = ledger.Reservation{
		ID: ledger.GrantID(r.NewID()), Request: placed.Request, Placement: placed.Placement,
		Owner: ledger.Owner{UID: peer.UID, PID: peer.PID},
	}
	c.Terms = at.Terms(c.Owner, placed.Enforced)
	return c, nil
}

// Release gives a grant back that holds no process. ErrDenied for another user's grant unless the caller is
// root, ErrConflict while processes run in its attachment, ErrNotFound for an unknown id.
func (r *Reserver) Release(_ context.Context, peer Peer, id ledger.GrantID) error {
	err := r.release(peer, id)
	if err == nil {
		r.Announce()
	}
	return err
}

func (r *Reserver) release(peer Peer, id ledger.GrantID) error {
	return r.Store.UpdateLater(func(l *ledger.Ledger) error {
		g, ok := l.Get(id)
		switch {
		case !ok:
			return fmt.Errorf("grant %q: %w", id, sharing.ErrNotFound)
		case peer.UID != 0 && peer.UID != g.Owner.UID:
			return fmt.Errorf("grant %q belongs to uid %d, and uid %d requests it: %w", id, g.Owner.UID, peer.UID,
				sharing.ErrDenied)
		case g.Work != ledger.NoWork:
			return fmt.Errorf("grant %q is being activated or ended; try again: %w", id, sharing.ErrConflict)
		case g.Active != nil:
			return fmt.Errorf("grant %q has running processes; end them, and it ends by itself: %w", id,
				sharing.ErrConflict)
		}
		return r.Drop(l, id)
	})
}

// at calls f with the node as a placement sees it now.
func (r *Reserver) at(f func(*place.Node)) {
	r.Store.Read(func(l store.Reader) { f(r.Place(l)) })
}
