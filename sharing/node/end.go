// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// Reconcile ends every lease whose cgroup is empty and charged with nothing, and every claim whose process ended before it was armed.
// It is what makes sure; the watches on cgroups only make it quick.
func (r *Runtime) Reconcile(ctx context.Context) {
	ended := false
	for _, id := range r.leased() {
		if !r.beginEnd(id) {
			continue
		}
		done, err := r.end(ctx, id)
		if ended = ended || done; err != nil {
			r.log.Warn("end of lease put off", "claim", id, "error", err.Error())
		}
	}
	dropped, pods := r.dropForgotten()
	r.backends(nil).Clean(ctx)
	r.store.SaveAgain()
	// One write for all of them: what the record has too much of, the next agent finds ended.
	if ended || pods {
		if err := r.store.Save(); err != nil {
			r.log.Error("end of leases and claims not on record", "error", err.Error())
		}
	}
	if dropped {
		r.changed.announce()
	}
}

// leased are the claims that have a lease.
func (r *Runtime) leased() []ledger.ClaimID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []ledger.ClaimID
	for _, g := range r.ledger.Grants() {
		if g.Lease != nil {
			ids = append(ids, g.Claim.ID)
		}
	}
	return ids
}

// beginEnd marks the lease as busy if its cgroup is empty. Only one at a time: a claim that is busy refuses
// its next container.
func (r *Runtime) beginEnd(id ledger.ClaimID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, _ := r.ledger.Get(id)
	if g.Work != ledger.NoWork || g.Lease == nil {
		return false
	}
	over, err := empty(r.groupOf(*g.Lease))
	if err != nil { // never end a lease on doubt
		r.log.Warn("cgroup cannot be read", "claim", id, "error", err.Error())
		return false
	}
	r.ledger.Drained(id, over)
	return over && r.ledger.Begin(id, ledger.Release) == nil
}

// empty reports whether no process is in the group, or whether it is gone: also where another has its name.
func empty(g cgroup.Group) (bool, error) {
	populated, err := g.Populated()
	if errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrStale) {
		return true, nil
	}
	return err == nil && !populated, err
}

// end takes the caps off, removes the cgroup and forgets the claim, in this order, so that a crash in
// between leaves an empty cgroup of ours, which Restore removes. The record is the caller's to write. done is
// false when the lease goes on.
func (r *Runtime) end(ctx context.Context, id ledger.ClaimID) (done bool, err error) {
	r.mu.Lock()
	att, known := r.driver.Get(), r.driver.Seen()
	g, _ := r.ledger.Get(id)
	group := r.groupOf(*g.Lease)
	r.mu.Unlock()
	left, err := r.charged(ctx, att, g)
	if err == nil && left == "" && known {
		err = r.removeCgroup(ctx, group, g.Lease.ContainerID == "", att)
	}

	r.mu.Lock()
	r.ledger.Done(id)
	r.conditions.SetOf(conditions.Draining, string(id), left)
	r.conditions.SetOf(conditions.Uncounted, string(id), "")
	r.conditions.SetOf(conditions.Rejected, string(id), "")
	if err != nil || left != "" || !known {
		r.mu.Unlock()
		return false, err
	}
	r.watcher.Drop(group)
	err = r.ledger.EndLease(id)
	if g.Claim.Owner.Pod() {
		if left, _ := r.ledger.Get(id); left.Next == nil {
			r.libkerf.Release(r.grantOf(g))
			r.guard.Released(id)
		}
	} else {
		r.forget(g)
	}
	r.opt.Observer.Ended()
	r.notify.Audit.Claim(audit.End, g.Claim, g.Claim.Backend, "its cgroup is empty", err)
	r.mu.Unlock()
	if !g.Claim.Owner.Pod() { // a pod's claim goes on, and its next container is made with the same daemon
		r.backends(att).Clean(ctx)
	}
	r.log.Info("lease ended", "claim", id)
	r.changed.announce()
	return true, err
}

// charged asks the driver whether memory is still the grant's although no process is in its cgroup: one left the cgroup with
// memory in hand, another process keeps what the grant's processes held, or the driver has not torn down yet. Such memory is
// not free, so the lease goes on; left then says so. A lost GPU holds nothing.
func (r *Runtime) charged(ctx context.Context, att *gpudriver.Attached, g ledger.Grant) (left string, err error) {
	if att == nil || g.Lease == nil {
		return "", nil
	}
	if att.Caps != nil {
		if left, err = r.chargedToLimit(ctx, att, g); left != "" || err != nil {
			return left, err
		}
	}
	return r.keptByOthers(ctx, att, g)
}

// keptByOthers asks whether others keep what processes of the grant held that have ended. A GPU that was granted whole is
// not asked about.
func (r *Runtime) keptByOthers(ctx context.Context, att *gpudriver.Attached, g ledger.Grant) (left string, err error) {
	var gpus []sharing.GPUID
	for _, f := range g.Claim.Placement {
		if !f.Whole {
			gpus = append(gpus, f.GPU)
		}
	}
	answers := r.sampler.Lists.AskAll(ctx, att.Driver, gpus, watchDeadline)
	r.mu.Lock()
	owners := r.owners(r.ledger.Grants())
	r.mu.Unlock()
	for _, look := range r.sampler.Lists.Judge(answers, owners) {
		switch err := look.Err; {
		case errors.Is(err, sharing.ErrLost), errors.Is(err, sharing.ErrUnsupported), errors.Is(err, sharing.ErrNotFound):
			continue // nothing is held, or nobody will ever tell
		case err != nil:
			return "", fmt.Errorf("list the processes of GPU %s: %w", look.GPU, err)
		}
		if c := look.Charge(listing.Owner(g.Claim.ID)); c.Ended > c.Inferred {
			return fmt.Sprintf("grant %s has no process any more, and another process keeps %s of GPU %s that its processes held: the memory stays booked until that ends", g.Claim.ID, c.Ended, look.GPU), nil
		}
	}
	return "", nil
}

// chargedToLimit asks about the driver's own count, where a limit is in force.
func (r *Runtime) chargedToLimit(ctx context.Context, att *gpudriver.Attached, g ledger.Grant) (left string, err error) {
	for _, f := range g.Claim.Placement {
		if !f.Whole && r.healthOf(f.GPU) == sharing.HealthSuspect {
			return fmt.Sprintf("grant %s has no process any more, and GPU %s does not answer: the memory stays booked until it tells that none is in use", g.Claim.ID, f.GPU), nil
		}
	}
	for _, f := range r.cappable(g.InForce()) {
		_, used, err := att.Caps.Read(ctx, g.Lease.Cgroup, f.GPU)
		switch {
		case errors.Is(err, sharing.ErrNotFound) || errors.Is(err, sharing.ErrLost) || errors.Is(err, sharing.ErrInvalid):
			// no limit, no cgroup or no GPU, so no charge
		case err != nil:
			return "", fmt.Errorf("use of an empty cgroup: %w", err)
		case used > 0:
			return fmt.Sprintf("grant %s has no process any more, and the driver still charges %s of GPU %s to it: the memory stays booked until that ends", g.Claim.ID, used, f.GPU), nil
		}
	}
	return "", nil
}

// removeCgroup takes the caps off and removes the cgroup, if it is ours and not a container runtime's.
func (r *Runtime) removeCgroup(ctx context.Context, group cgroup.Group, ours bool, att *gpudriver.Attached) error {
	ctx, cancel := context.WithTimeout(ctx, capDeadline)
	defer cancel()
	if att != nil && att.Caps != nil {
		if err := att.Caps.Clear(ctx, group.Dir, r.limitable(att.GPUs)); err != nil {
			// The limit goes with the cgroup; a driver that does not answer must not keep the claim alive.
			r.log.Warn("cap not cleared before its cgroup is removed", "cgroup", group.Dir, "error", err.Error())
		}
	}
	if err := r.opt.Failpoints.Eval("end-after-clear"); err != nil {
		return err
	}
	if !ours {
		return nil
	}
	if err := group.Remove(); err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return r.opt.Failpoints.Eval("end-after-rmdir")
}

// dropForgotten reports whether it dropped any claim, and any of a pod, which are on record.
func (r *Runtime) dropForgotten() (dropped, pods bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.ledger.Grants() {
		if g.Work != ledger.NoWork || g.Lease != nil || !r.forgotten(g) {
			continue
		}
		if err := r.drop(g.Claim.ID); err != nil {
			r.log.Error("claim of an ended process not dropped", "claim", g.Claim.ID, "error", err.Error())
			continue
		}
		r.log.Info("claim ended: whom it was held for is gone", "claim", g.Claim.ID, "pod", g.Claim.Owner.Namespace+"/"+g.Claim.Owner.PodName, "container", g.Claim.Owner.Container)
		dropped, pods = true, pods || g.Claim.Owner.Pod()
	}
	return dropped, pods
}

// forgotten reports whether whom the unused claim is held for is gone: the process that claimed, the time
// that it had, or the pod. It needs the lock.
func (r *Runtime) forgotten(g ledger.Grant) bool {
	switch {
	case g.Claim.Owner.Pod():
		return g.Withdrawn != ledger.NotWithdrawn && !r.usedBeside(g)
	case !g.Claim.Until.IsZero():
		return time.Now().After(g.Claim.Until)
	}
	h := r.held[g.Claim.ID]
	return h.owner != nil && !h.owner.Alive()
}
