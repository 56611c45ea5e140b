// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/faults"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// Reasons of what TellPods tells of GPUs and of the node.
const (
	// FaultyReason of a pod: a GPU of the container is unhealthy or lost.
	FaultyReason = "GPUFaulty"
	// MendedReason of a pod: all its GPUs are well again. It is no warning.
	MendedReason = "GPUMended"
	// LeavingReason of a pod: the node will be taken away.
	LeavingReason = "NodeLeaving"
)

const (
	// mostEnds is how many pods are evicted for faults at once.
	mostEnds = 16
	// faultGap is the least time between two looks at who is on a faulty GPU.
	faultGap = 50 * time.Millisecond
	// gpuFault is the reason of kills and evictions for the observer.
	gpuFault = "gpu_fault"
)

// faultLoop tells those whose GPU is unhealthy or lost, and ends them where the pool says so. It looks at each change
// of the node, and when a grace is over.
func (r *Runtime) faultLoop(ctx context.Context) error {
	var (
		keeper faults.Keeper
		ends   errgroup.Group
		start  = time.Now()
		sick   = map[sharing.GPUID]faults.Part{}
	)
	ends.SetLimit(mostEnds)
	defer func() { _ = ends.Wait() }() // what goes wrong was told
	for {
		changed := r.changed.wait() // of before the look, so that none is missed
		now := time.Since(start)
		policy, grants := r.faultyGrants(sick)
		acts, next := keeper.Step(now, policy, grants)
		for _, a := range acts {
			r.actOnFault(ctx, &ends, policy, a)
		}
		r.keepEnding(policy, grants, time.Now())
		var due <-chan time.Time
		if next > 0 {
			due = time.After(max(next-now, faultGap))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(faultGap):
		}
	}
}

// faultyGrants are all grants, with what is wrong with their GPUs. sick is what was wrong at the last look: a GPU of which
// nothing is known at the moment, because its driver is gone or has just been loaded, is as it was.
func (r *Runtime) faultyGrants(sick map[sharing.GPUID]faults.Part) (faults.Policy, []faults.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.pool.Health
	policy := faults.Policy{Evict: h.OnFault == config.FaultEvict, Grace: h.GraceOf()}
	for _, v := range r.ledger.GPUs() {
		switch id, health := v.GPU.UUID, v.GPU.Health; health {
		case sharing.HealthUnhealthy, sharing.HealthLost:
			sick[id] = faults.Part{GPU: id, Health: health, Reason: v.GPU.HealthReason}
		case sharing.HealthOK, sharing.HealthSuspect:
			delete(sick, id)
		case sharing.HealthUnknown:
		}
	}
	var out []faults.Grant
	for _, g := range r.ledger.Grants() {
		one := faults.Grant{ID: string(g.Claim.ID), Group: g.Claim.Owner.PodUID, Leased: g.Lease != nil}
		for _, f := range g.Claim.Placement {
			if p, is := sick[f.GPU]; is {
				one.Faulty = append(one.Faulty, p)
			}
		}
		one.Faulty = append(one.Faulty, r.faulty.Parts(g.Claim.Placement)...)
		out = append(out, one)
	}
	return policy, out
}

func (r *Runtime) actOnFault(ctx context.Context, ends *errgroup.Group, p faults.Policy, a faults.Act) {
	r.mu.Lock()
	g, ok := r.ledger.Get(ledger.ClaimID(a.Grant))
	r.mu.Unlock()
	if !ok {
		return // it has ended
	}
	what := partsText(a.Parts)
	switch a.Kind {
	case faults.Tell:
		r.log.Warn("grant is on a faulty GPU", "claim", a.Grant, "pod", g.Claim.Owner.Namespace+"/"+g.Claim.Owner.PodName, "fault", what)
		r.notify.Pod(ctx, g, FaultyReason, what+r.fate(p))
	case faults.Mended:
		r.log.Info("grant's GPUs are well again", "claim", a.Grant)
		r.notify.Pod(ctx, g, MendedReason, "all GPUs of the container are well again; what it had in their memory may be lost")
	case faults.Ask:
		r.tellEnding(g, what, false, time.Now())
		r.log.Warn("processes on a faulty GPU are asked to end", "claim", a.Grant, "grace", p.Grace.String(), "fault", what)
		r.opt.Audit.Claim(audit.Fault, g.Claim, 0, "its processes get SIGTERM: "+what, r.signalLease(g, process.Terminate))
	case faults.End:
		r.tellEnding(g, what, true, time.Now())
		ends.TryGo(func() error { r.endFaulty(ctx, g, what); return nil })
	}
}

// fate says what comes next under the policy.
func (r *Runtime) fate(p faults.Policy) string {
	if !p.Evict {
		return " (onFault: report)"
	}
	return fmt.Sprintf("; it is asked to end, and its pod is evicted in %s (onFault: evict)", p.Grace)
}

func partsText(parts []faults.Part) string {
	var out []string
	for _, p := range parts {
		out = append(out, fmt.Sprintf("GPU %s is %s: %s", p.GPU, p.Health, p.Reason))
	}
	return strings.Join(out, "; ")
}

// endFaulty evicts the pod of a grant, or kills its processes where it is of no pod or nobody can evict.
func (r *Runtime) endFaulty(ctx context.Context, g ledger.Grant, what string) {
	if !r.notify.CanEvict(g) {
		r.log.Warn("processes on a faulty GPU are killed", "claim", string(g.Claim.ID), "fault", what)
		err := r.signalLease(g, process.KillNow)
		r.opt.Observer.Killed(gpuFault, err)
		r.opt.Audit.Claim(audit.Fault, g.Claim, 0, "its processes are killed: "+what, err)
		return
	}
	ref := notify.Ref(g)
	err := r.notify.Evict(ctx, g, gpuFault)
	r.opt.Audit.Claim(audit.Fault, g.Claim, 0, "its pod is evicted: "+what, err)
	if err != nil {
		r.log.Error("pod on a faulty GPU not evicted", "pod", ref.Namespace+"/"+ref.Pod, "error", err.Error())
		return
	}
	r.log.Warn("pod evicted", "reason", gpuFault, "pod", ref.Namespace+"/"+ref.Pod, "claim", string(g.Claim.ID), "fault", what)
	r.notify.Pod(ctx, g, FaultyReason, what+"; its pod is evicted (onFault: evict)")
}

// signalLease sends a signal to all processes of a lease, each checked again while it is held.
func (r *Runtime) signalLease(g ledger.Grant, send func(pid int, check func() error) error) error {
	if g.Lease == nil {
		return nil
	}
	group, err := r.opt.Cgroups.Open(g.Lease.Cgroup, g.Lease.Inode)
	if err != nil {
		return fmt.Errorf("signal grant %q: %w", g.Claim.ID, err)
	}
	pids, err := group.Procs()
	if err != nil {
		return fmt.Errorf("signal grant %q: %w", g.Claim.ID, err)
	}
	var errs []error
	for _, pid := range pids {
		check := func() error {
			dir, err := r.opt.Cgroups.OfProcess(pid)
			if err == nil && !beneath(dir, g.Lease.Cgroup) {
				err = fmt.Errorf("it is in cgroup %q now: %w", dir, sharing.ErrStale)
			}
			return err
		}
		if err := send(pid, check); err != nil && !errors.Is(err, sharing.ErrNotFound) {
			errs = append(errs, err)
			r.log.Warn("process on a faulty GPU not signalled", "claim", string(g.Claim.ID), "pid", pid, "error", err.Error())
		}
	}
	return errors.Join(errs...)
}

// SetLeaving tells that the node will be taken away, and why (empty: it is not, any more). Nothing new is granted then,
// and each pod that has a GPU is told.
func (r *Runtime) SetLeaving(ctx context.Context, why string) {
	r.mu.Lock()
	var grants []ledger.Grant
	if r.conditions.Set(conditions.Leaving, why) && why != "" {
		grants = r.ledger.Grants()
	}
	r.mu.Unlock()
	for _, g := range grants {
		r.notify.Pod(ctx, g, LeavingReason, why)
	}
}
