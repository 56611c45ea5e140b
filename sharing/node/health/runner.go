// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/faults"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// Reasons of events of pods.
const (
	// UnhealthyReason of a pod: a GPU of the container is unhealthy or lost.
	UnhealthyReason = "GPUUnhealthy"
	// RecoveredReason of a pod: all GPUs of the container recovered. It is no warning.
	RecoveredReason = "GPURecovered"
)

const (
	// mostEnds is how many pods are evicted for faults at once.
	mostEnds = 16
	// gap is the least time between two passes.
	gap = 50 * time.Millisecond
	// gpuFault is the reason of kills and evictions for the observer.
	gpuFault = "gpu_fault"
)

// View is what a Runner sees of the node, at one moment.
type View struct {
	Rule   config.Health
	GPUs   []ledger.View
	Grants []ledger.Grant
}

// Runner tells the users of faulty GPUs, and ends them where the pool says so.
type Runner struct {
	Log     *slog.Logger
	Table   *Table
	Endings *Endings
	Notify  *notify.Notifier
	Cgroups cgroup.Hierarchy
	View    func() View
	// Changed returns a channel that is closed at the next change of the node.
	Changed func() <-chan struct{}

	tracker faults.Tracker
	// faulty is what was wrong with GPUs at the last pass. A GPU of unknown health is as it was: its driver is gone, or
	// has just been loaded.
	faulty map[sharing.GPURef]faults.Part
	ends   errgroup.Group
}

// Run looks at each change of the node, and when a grace period ends. It ends with ctx.
func (r *Runner) Run(ctx context.Context) error {
	start := time.Now()
	r.faulty = map[sharing.GPURef]faults.Part{}
	r.ends.SetLimit(mostEnds)
	defer func() { _ = r.ends.Wait() }() // its functions log their errors
	for {
		changed := r.Changed() // of before the pass, so that none is missed
		now := time.Since(start)
		next := r.pass(ctx, now)
		var due <-chan time.Time
		if next > 0 {
			due = time.After(max(next-now, gap))
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
		case <-time.After(gap):
		}
	}
}

// pass acts on the faults of this moment, and returns when the next grace period ends; 0 for none.
func (r *Runner) pass(ctx context.Context, now time.Duration) time.Duration {
	v := r.View()
	policy := faults.Policy{Evict: v.Rule.OnFault == config.FaultEvict, Grace: v.Rule.GraceOf()}
	grants := r.judge(v)
	acts, next := r.tracker.Step(now, policy, grants)
	for _, a := range acts {
		r.act(ctx, policy, a)
	}
	r.Endings.keep(policy, grants, time.Now())
	return next
}

// judge returns all grants, with what is wrong with their GPUs.
func (r *Runner) judge(v View) []faults.Grant {
	for _, g := range v.GPUs {
		switch id, health := g.GPU.Ref(), g.GPU.Health; health {
		case sharing.HealthUnhealthy, sharing.HealthLost:
			r.faulty[id] = faults.Part{GPU: id, Health: health, Reason: g.GPU.HealthReason}
		case sharing.HealthOK, sharing.HealthSuspect:
			delete(r.faulty, id)
		case sharing.HealthUnknown:
		}
	}
	var out []faults.Grant
	for _, g := range v.Grants {
		one := faults.Grant{ID: string(g.ID), Group: g.Owner.PodUID, Active: g.Active != nil}
		for _, f := range g.Placement {
			if p, is := r.faulty[f.GPU]; is {
				one.Faulty = append(one.Faulty, p)
			}
		}
		one.Faulty = append(one.Faulty, r.Table.instances().Parts(g.Placement)...)
		out = append(out, one)
	}
	return out
}

func (r *Runner) act(ctx context.Context, p faults.Policy, a faults.Act) {
	grants := r.View().Grants
	i := slices.IndexFunc(grants, func(g ledger.Grant) bool { return string(g.ID) == a.Grant })
	if i < 0 {
		return // it has ended
	}
	g, what := grants[i], partsText(a.Parts)
	switch a.Kind {
	case faults.Report:
		r.Log.Warn("GPU of grant became faulty", "grant", a.Grant, "pod", g.Owner.Namespace+"/"+
			g.Owner.PodName, "fault", what)
		r.Notify.Pod(ctx, g, UnhealthyReason, what+fate(p))
	case faults.Recovered:
		r.Log.Info("GPUs of grant recovered", "grant", a.Grant)
		r.Notify.Pod(ctx, g, RecoveredReason,
			"All GPUs of the container recovered. Data in their memory may be lost.")
	case faults.RequestEnd:
		r.note(g, what, false)
		r.Log.Warn("sent SIGTERM to processes on a faulty GPU", "grant", a.Grant, "grace", p.Grace.String(), "fault",
			what)
		r.Notify.Audit.Grant(audit.Fault, g.Reservation, 0, "its processes get SIGTERM: "+what,
			r.signal(g, process.Terminate))
	case faults.End:
		r.note(g, what, true)
		r.ends.TryGo(func() error { r.end(ctx, g, what); return nil })
	}
}

// note lists the pod of a grant among those that end.
func (r *Runner) note(g ledger.Grant, why string, forced bool) {
	if g.Owner.Pod() {
		r.Endings.note(notify.Ref(g), why, forced, time.Now())
	}
}

// fate is the sentence about what Kerf does under the policy.
func fate(p faults.Policy) string {
	if !p.Evict {
		return ". Kerf takes no action (onFault: warn)."
	}
	return fmt.Sprintf(". The container gets SIGTERM, and Kerf evicts the pod in %s (onFault: evict).", p.Grace)
}

func partsText(parts []faults.Part) string {
	var out []string
	for _, p := range parts {
		out = append(out, fmt.Sprintf("GPU %s is %s: %s", p.GPU, p.Health, p.Reason))
	}
	return strings.Join(out, "; ")
}

// end evicts the pod of a grant. It kills the processes of a grant without a pod, or if pods cannot be evicted.
func (r *Runner) end(ctx context.Context, g ledger.Grant, what string) {
	if !r.Notify.CanEvict(g) {
		r.Log.Warn("killed processes on a faulty GPU", "grant", string(g.ID), "fault", what)
		err := r.signal(g, process.KillNow)
		r.Notify.Observer.Killed(gpuFault, err)
		r.Notify.Audit.Grant(audit.Fault, g.Reservation, 0, "its processes are killed: "+what, err)
		return
	}
	ref := notify.Ref(g)
	err := r.Notify.Evict(ctx, g, gpuFault)
	r.Notify.Audit.Grant(audit.Fault, g.Reservation, 0, "its pod is evicted: "+what, err)
	if err != nil {
		r.Log.Error("failed to evict pod on a faulty GPU", "pod", ref.Namespace+"/"+ref.Pod, "error", err.Error())
		return
	}
	r.Log.Warn("evicted pod", "reason", gpuFault, "pod", ref.Namespace+"/"+ref.Pod, "grant", string(g.ID),
		"fault", what)
	r.Notify.Pod(ctx, g, UnhealthyReason, what+". Kerf evicts the pod (onFault: evict).")
}

// signal sends a signal to all processes of a grant, each checked again while its pidfd is open.
func (r *Runner) signal(g ledger.Grant, send func(pid int, check func() error) error) error {
	if g.Active == nil {
		return nil
	}
	group, err := r.Cgroups.Open(g.Active.Cgroup, g.Active.Inode)
	if err != nil {
		return fmt.Errorf("signal grant %q: %w", g.ID, err)
	}
	pids, err := group.Procs()
	if err != nil {
		return fmt.Errorf("signal grant %q: %w", g.ID, err)
	}
	var errs []error
	for _, pid := range pids {
		check := func() error {
			dir, err := r.Cgroups.OfProcess(pid)
			if err == nil && !cgroup.Beneath(dir, g.Active.Cgroup) {
				err = fmt.Errorf("it is in cgroup %q now: %w", dir, sharing.ErrStale)
			}
			return err
		}
		if err := send(pid, check); err != nil && !errors.Is(err, sharing.ErrNotFound) {
			errs = append(errs, err)
			r.Log.Warn("failed to signal process on a faulty GPU", "grant", string(g.ID), "pid", pid, "error",
				err.Error())
		}
	}
	return errors.Join(errs...)
}
