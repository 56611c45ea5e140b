// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// reservations stands, in the queue, for all grants without an attachment.
const reservations ledger.GrantID = ""

// Run ends attachments and grants until ctx ends: an attachment when its cgroup is empty, and grants when they are
// withdrawn. Nothing tells that a reservation expires, or that the driver frees memory, so these are looked at again
// and again.
func (r *Releaser) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Watcher.Run(ctx, r.emptied) })
	g.Go(func() error { r.follow(ctx); return nil })
	g.Go(func() error {
		r.queue.Run(ctx, reconcileGap, func(ids []ledger.GrantID) { r.pass(ctx, ids) })
		return nil
	})
	return g.Wait() //nolint:wrapcheck // it is that of the watcher
}

// emptied tells that no process is in a cgroup any more.
func (r *Releaser) emptied(group cgroup.Group) {
	r.Store.Read(func(l store.Reader) {
		if id, ok := l.ByCgroup(group.Dir); ok {
			r.queue.Add(id)
		}
	})
}

// follow has the Releaser look at what the transitions of grants concern. It settles the checkpoint at intervals: a
// container that starts would wait for each write.
func (r *Releaser) follow(ctx context.Context) {
	news := r.Store.Subscribe(func(s ledger.Transition) bool { return !s.Attachment && s.To == ledger.Releasing })
	defer news.Close()
	t := time.NewTicker(reservationsEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			r.queue.Add(reservations)
			_ = r.Store.Settle() // the condition has the error
		case <-news.Ready():
		}
		steps, resync := news.Take()
		if resync {
			r.Wake()
		}
		if len(steps) > 0 {
			r.queue.Add(reservations)
		}
	}
}

// Reconcile ends every attachment whose cgroup is empty and charged with nothing, and every grant whose process ended
// before it was activated.
func (r *Releaser) Reconcile(ctx context.Context) { r.pass(ctx, r.Active()) }

// pass looks at these attachments, and at all grants without one.
func (r *Releaser) pass(ctx context.Context, ids []ledger.GrantID) {
	ended := false
	for _, id := range ids {
		begun, again := r.beginEnd(id)
		if begun {
			done, err := r.end(ctx, id)
			if ended, again = ended || done, !done; err != nil {
				r.Log.Warn("failed to release grant, will retry", "grant", id, "error", err.Error())
			}
		}
		if again {
			r.queue.After(id, againEvery)
		}
	}
	dropped, pods := r.dropForgotten()
	r.Backends(nil).Clean(ctx)
	r.Store.SaveAgain()
	// One write for all of them: what the record has too much of, the next agent finds ended.
	if ended || pods {
		if err := r.Store.Save(); err != nil {
			r.Log.Error("failed to write released grants to the checkpoint", "error", err.Error())
		}
	}
	if dropped {
		r.Announce()
	}
}

// beginEnd marks the grant as busy if its cgroup is empty. Only one can do so at a time: a busy grant rejects its next
// container. If the attachment may be over and cannot end now, again is true.
func (r *Releaser) beginEnd(id ledger.GrantID) (begun, again bool) {
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		g, _ := l.Get(id)
		if g.Active == nil {
			return nil
		}
		if again = g.Work != ledger.NoWork; again {
			return nil
		}
		group := r.GroupOf(*g.Active)
		over, err := empty(group)
		if again = err != nil; again { // never end an attachment on doubt
			r.Log.Warn("failed to read cgroup", "grant", id, "error", err.Error())
			return nil
		}
		l.Drained(id, over)
		if !over {
			r.Watcher.Add(group) // it watches no group that was once empty
			return nil
		}
		begun = l.Begin(id, ledger.Release) == nil
		return nil
	})
	return begun, again
}

// end takes the caps off, removes the cgroup and forgets the grant, in this order. So a crash in between leaves an
// empty cgroup of Kerf, which Restore removes. The caller writes the checkpoint. If the attachment goes on, done is
// false.
func (r *Releaser) end(ctx context.Context, id ledger.GrantID) (done bool, err error) {
	att, known := r.Driver.Get(), r.Driver.Seen()
	g, _ := r.Store.Get(id)
	group := r.GroupOf(*g.Active)
	left, err := r.charged(ctx, att, g)
	if err == nil && left == "" && known {
		err = r.removeCgroup(ctx, group, g.Active.ContainerID == "", att)
	}
	done = err == nil && left == "" && known
	over := r.Store.UpdateLater(func(l *ledger.Ledger) error {
		l.Done(id)
		r.Conditions.SetOf(conditions.Draining, string(id), left)
		r.Conditions.SetOf(conditions.Uncounted, string(id), "")
		r.Conditions.SetOf(conditions.Rejected, string(id), "")
		if !done {
			return nil
		}
		r.Watcher.Drop(group)
		return r.ended(l, g)
	})
	if !done {
		return false, err
	}
	if !g.Owner.Pod() { // a pod's grant goes on, and its next container is made with the same daemon
		r.Backends(att).Clean(ctx)
	}
	r.Log.Info("released grant", "grant", id)
	r.Announce()
	return true, over
}

// ended forgets an attachment, and the grant of a process with it.
func (r *Releaser) ended(l *ledger.Ledger, g ledger.Grant) error {
	err := l.EndAttachment(g.ID)
	if !g.Owner.Pod() {
		r.Forget(l, g)
	} else if left, _ := l.Get(g.ID); left.Next == nil {
		r.Libkerf.Release(GrantOf(l, g))
		r.Guard.Released(g.ID)
	}
	r.Observer.Ended()
	r.Notify.Audit.Grant(audit.End, g.Reservation, g.Backend, "its cgroup is empty", err)
	return err
}

// charged asks the driver whether memory is still charged to the grant although no process is in its cgroup. One may
// have left the cgroup with memory, another process may keep memory of the grant, or the driver has not freed it yet.
// Such memory is not free, so the attachment goes on, and left says so. A lost GPU has no memory in use.
func (r *Releaser) charged(ctx context.Context, att *gpudriver.Attached, g ledger.Grant) (left string, err error) {
	if att == nil || g.Active == nil {
		return "", nil
	}
	if att.Caps != nil {
		if left, err = r.chargedToLimit(ctx, att, g); left != "" || err != nil {
			return left, err
		}
	}
	return r.keptByOthers(ctx, att, g)
}

// keptByOthers asks whether others keep what processes of the grant held that have ended. A GPU that was granted whole
// is not asked about.
func (r *Releaser) keptByOthers(ctx context.Context, att *gpudriver.Attached, g ledger.Grant) (left string, err error) {
	var gpus []sharing.GPURef
	for _, f := range g.Placement {
		if !f.Whole {
			gpus = append(gpus, f.GPU)
		}
	}
	answers := r.Lists.QueryAll(ctx, att.Driver, gpus, listDeadline)
	for _, look := range r.Lists.Attribute(answers, r.Owners(r.Store.Grants())) {
		switch err := look.Err; {
		case errors.Is(err, sharing.ErrLost), errors.Is(err, sharing.ErrUnsupported),
			errors.Is(err, sharing.ErrNotFound):
			continue // no usage, or no driver that can report it
		case err != nil:
			return "", fmt.Errorf("list the processes of GPU %s: %w", look.GPU, err)
		}
		if c := look.Charge(listing.Owner(g.ID)); c.Ended > c.Inferred {
			return fmt.Sprintf("grant %s has no process any more, and another process keeps %s of GPU %s that its "+
				"processes held: the memory stays booked until that ends", g.ID, c.Ended, look.GPU), nil
		}
	}
	return "", nil
}

// chargedToLimit returns the driver's count, if the driver enforces a limit.
func (r *Releaser) chargedToLimit(ctx context.Context, att *gpudriver.Attached, g ledger.Grant) (left string,
	err error) {
	for _, f := range g.Placement {
		if !f.Whole && r.caps.healthOf(f.GPU) == sharing.HealthSuspect {
			return fmt.Sprintf("grant %s has no process any more, and GPU %s does not answer: the memory stays "+
				"booked until it tells that none is in use", g.ID, f.GPU), nil
		}
	}
	for _, f := range r.caps.cappable(g.InForce()) {
		_, used, err := att.Caps.Read(ctx, g.Active.Cgroup, f.GPU)
		switch {
		case errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrLost) ||
			errors.Is(err, sharing.ErrInvalid):
			// no limit, no cgroup or no GPU, so no charge
		case err != nil:
			return "", fmt.Errorf("use of an empty cgroup: %w", err)
		case used > 0:
			return fmt.Sprintf("grant %s has no process any more, and the driver still charges %s of GPU %s to it: "+
				"the memory stays booked until that ends", g.ID, used, f.GPU), nil
		}
	}
	return "", nil
}

// removeCgroup takes the caps off and removes the cgroup, if it is ours and not a container runtime's.
func (r *Releaser) removeCgroup(ctx context.Context, group cgroup.Group, ours bool, att *gpudriver.Attached) error {
	ctx, cancel := context.WithTimeout(ctx, CapDeadline)
	defer cancel()
	if att != nil && att.Caps != nil {
		if err := att.Caps.Clear(ctx, group.Dir, r.caps.limitable(att.GPUs)); err != nil {
			// The limit goes with the cgroup; a driver that does not answer must not keep the grant alive.
			r.Log.Warn("failed to clear cap before its cgroup was removed", "cgroup", group.Dir, "error", err.Error())
		}
	}
	if err := r.Failpoints.Eval("end-after-clear"); err != nil {
		return err
	}
	if !ours {
		return nil
	}
	if err := group.Remove(); err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return r.Failpoints.Eval("end-after-rmdir")
}

// dropForgotten reports whether it dropped any grant, and any of a pod, which are on record.
func (r *Releaser) dropForgotten() (dropped, pods bool) {
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		for _, g := range l.Grants() {
			if g.Work != ledger.NoWork || g.Active != nil || !r.forgotten(l, g) {
				continue
			}
			if err := r.Drop(l, g.ID); err != nil {
				r.Log.Error("failed to release grant of an ended process", "grant", g.ID, "error", err.Error())
				continue
			}
			r.Log.Info("released grant of an ended owner", "grant", g.ID, "pod", g.Owner.Namespace+
				"/"+g.Owner.PodName, "container", g.Owner.Container)
			dropped, pods = true, pods || g.Owner.Pod()
		}
		return nil
	})
	return dropped, pods
}

// forgotten reports whether whom the unused grant is held for is gone: the process that reserved, the time
// that it had, or the pod.
func (r *Releaser) forgotten(l store.Reader, g ledger.Grant) bool {
	switch {
	case g.Owner.Pod():
		return g.Withdrawn != ledger.NotWithdrawn && !SharedCapUsed(l, g) && !place.KeptForClaim(l.Grants(), g)
	case !g.Until.IsZero():
		return time.Now().After(g.Until)
	}
	owner := r.Handles.Owner(g.ID)
	return owner != nil && !owner.Alive()
}
