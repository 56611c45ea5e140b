// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/mig/live"
	"github.com/kerf-gpu/kerf/mig/manager"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
)

const (
	// migEvery is how often each GPU's MIG mode and instances are compared with the pool's layout. Idle instances
	// expire, recovery is tried again, and other programs change instances without an event.
	migEvery = time.Second
	// MIGDir is the folder of the MIG journals, below the folder of what outlives a reboot.
	MIGDir = "mig"
	// containersPatience is how long the first layout waits for the container runtime. Its list comes within 100 ms of
	// the connection.
	containersPatience = 5 * time.Second
	// planWait is how long one who asks for a plan waits for a driver; taking stock of the GPUs takes less.
	planWait = 10 * time.Second
)

// cutter makes what keeps the GPUs' MIG instances.
func (s *Session) cutter(lib *nvml.Library, gpus []sharing.GPU, quiet *gate) (*manager.Manager, error) {
	boot, err := process.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	journals := filepath.Join(s.State, MIGDir)
	if err := os.MkdirAll(journals, 0o700); err != nil {
		return nil, fmt.Errorf("directory of mig journals: %w", err)
	}
	driver := live.New(lib)
	hush := &quiescer{gate: quiet, events: lib.PauseEvents, others: others(s.Options.Dirs.Dir), log: s.Log}
	return manager.New(manager.Options{
		Log: s.Log, Driver: audited(driver, s.Audit), Store: crashStore{exec.Files{Dir: journals},
			s.Options.Failpoints}, BootID: boot,
		Grants:      s.Runtime.GrantsOn,
		UserListers: []exec.UserLister{driver}, Last: []exec.UserLister{listed{s}}, Quiesce: hush.letGo,
		Pool: s.Runtime.Settings().Pool, ReadOnly: s.Options.ReadOnly(), Now: time.Now,
		Around: aroundDriver(s.Options.Failpoints, s.Events.MIGStep), Before: s.cutBefore,
	}, gpus), nil
}

// listed are the containers that the container runtime lists and that have no grant, as users of GPUs.
type listed struct{ session *Session }

// Users implements exec.UserLister. Without Kubernetes, and where the runtime keeps no list for others, there are none.
func (l listed) Users(ctx context.Context, gpu sharing.GPUID) ([]mig.User, error) {
	if l.session.Seen == nil {
		return nil, nil
	}
	seen, err := l.session.Seen(ctx)
	if errors.Is(err, sharing.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the container runtime's containers: %w", err)
	}
	seen = slices.DeleteFunc(seen, func(s sharing.Seen) bool {
		return slices.Contains(l.session.Options.Cluster.Exempt,
			s.Ref.Namespace)
	})
	return l.session.Runtime.UnaccountedOn(gpu, seen), nil
}

// awaitContainers waits until the container runtime has listed its containers. Before that, who has an instance is not
// known, so that no layout can be made. It waits for at most patience: a runtime that does not start must not keep the
// driver from use.
func awaitContainers(ctx context.Context, r grants, gpus []sharing.GPU, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, g := range gpus {
		for {
			changed := r.Changed()
			if _, err := r.GrantsOn(g.UUID); !errors.Is(err, sharing.ErrUnavailable) {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// grants is the part of the node runtime that awaitContainers needs.
type grants interface {
	Changed() <-chan struct{}
	GrantsOn(gpu sharing.GPUID) ([]mig.Granted, error)
}

// firstCut recovers the GPUs, and makes modes and layouts, before anything is offered. It returns the inventory after
// it.
func (s *Session) firstCut(ctx context.Context, lib *nvml.Library, cut *manager.Manager, gpus []sharing.GPU,
	leftOut []error) ([]sharing.GPU, []error, error) {
	awaitContainers(ctx, s.Runtime, gpus, containersPatience)
	cut.Tick(ctx)
	s.tellCut(cut)
	if !modeChanged(cut, gpus) {
		return gpus, leftOut, nil
	}
	gpus, leftOut, err := lib.GPUs(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("take stock of the GPUs: %w", err)
	}
	return gpus, leftOut, nil
}

// keepCut goes on with it until ctx ends. It returns settings.ErrRescan when a GPU's MIG mode is another one than the
// inventory says.
func (s *Session) keepCut(ctx context.Context, lib *nvml.Library, cut *manager.Manager, gpus,
	parts []sharing.GPU) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cut.Run(ctx, migEvery, func() {
		s.tellCut(cut)
		if modeChanged(cut, gpus) {
			stop(fmt.Errorf("a GPU's MIG mode has changed: %w", settings.ErrRescan))
			return
		}
		parts = s.keepParts(ctx, lib, parts, partsOf(s.Runtime, cut, gpus))
	})
	return context.Cause(ctx) //nolint:wrapcheck // it says what it is
}

// keepParts replaces the shared MIG instances in the inventory. It returns those whose backends are known: the others
// are asked again in the next round.
func (s *Session) keepParts(ctx context.Context, lib *nvml.Library, had, now []sharing.GPU) []sharing.GPU {
	same := func(x, y sharing.GPU) bool { return x.Ref() == y.Ref() && x.Memory == y.Memory }
	if slices.EqualFunc(now, had, same) {
		return had
	}
	levels := map[sharing.GPURef]choice.Report{}
	known := slices.DeleteFunc(slices.Clone(now), func(p sharing.GPU) bool {
		if slices.ContainsFunc(had, func(h sharing.GPU) bool { return same(h, p) }) {
			return false
		}
		levels[p.Ref()] = s.partReport(ctx, lib, p)
		return levels[p.Ref()].Undecided()
	})
	s.Runtime.Amend(func(att *gpudriver.Attached) {
		gpus := slices.DeleteFunc(slices.Clone(att.GPUs), func(g sharing.GPU) bool { return g.Ref().IsInstance() })
		att.GPUs = slices.Concat(gpus, now)
		maps.Copy(att.Levels, levels)
	})
	return known
}

// partsOf are the MIG instances that give shares: those of layouts with shares, and those on which a grant still has a
// share.
func partsOf(r *node.Runtime, cut *manager.Manager, gpus []sharing.GPU) []sharing.GPU {
	var out []sharing.GPU
	for _, v := range cut.States() {
		i := slices.IndexFunc(gpus, func(g sharing.GPU) bool { return g.UUID == v.GPU })
		if i < 0 || !v.On {
			continue
		}
		used := r.PartsInUse(v.GPU)
		for _, p := range v.Instances {
			if p.Managed && p.Ready && (v.Shared || slices.Contains(used, p.On(v.GPU))) {
				out = append(out, partOf(gpus[i], p))
			}
		}
	}
	return out
}

// partOf is an instance of a GPU as a separate GPU.
func partOf(g sharing.GPU, p mig.Instance) sharing.GPU {
	g = g.Clone()
	g.Part, g.MIG, g.NVLinks = p.Instance, false, nil
	g.Model += " MIG " + p.Profile
	g.Memory, g.Reserved = p.Memory, 0
	return g
}

// modeChanged reports whether the inventory is of before a change of a MIG mode.
func modeChanged(cut *manager.Manager, gpus []sharing.GPU) bool {
	for _, v := range cut.States() {
		for _, g := range gpus {
			if g.UUID == v.GPU && g.MIG != v.On && v.Error == "" {
				return true
			}
		}
	}
	return false
}

// tellCut shows what stands in the way on the GPUs.
func (s *Session) tellCut(cut *manager.Manager) {
	trouble := map[sharing.GPUID]string{}
	for _, v := range cut.States() {
		if v.Error != "" {
			trouble[v.GPU] = v.Error
		}
		s.news.say(v.GPU, v.Error, v.PendingReason)
		sentence := ""
		if v.PendingReason != "" {
			sentence = fmt.Sprintf("MIG on GPU %s is not as the pool says: %s", v.GPU, v.PendingReason)
		}
		s.Runtime.Conditions.SetOf(conditions.MIG, string(v.GPU), sentence)
	}
	s.Runtime.SetErrors(trouble)
}

// cutterInUse is the manager of the instances of the current GPUs. There is none for a moment when the inventory is
// read again, for example after a mode switch. So it waits up to patience, and returns nil after that.
func cutterInUse(ctx context.Context, in *atomic.Pointer[manager.Manager], patience time.Duration) *manager.Manager {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(planWait / 100)
	defer again.Stop()
	for {
		if cut := in.Load(); cut != nil {
			return cut
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// PlanMIG implements nodeserver.MIGPlanner.
func (s *Session) PlanMIG(ctx context.Context, document string, apply bool) ([]mig.Proposal, error) {
	cut, pool := cutterInUse(ctx, &s.migManager, planWait), s.Runtime.Settings().Pool()
	if cut == nil {
		return nil,
			fmt.Errorf("plan mig: no driver is in use now: %s; try again when kerf status says that the agent is "+
				"ready: %w",
				strings.Join(s.Runtime.NotReady(), "; "), sharing.ErrUnavailable)
	}
	if document != "" {
		c, err := config.Decode([]byte(document))
		if err != nil {
			return nil, err
		}
		if pool, err = c.PoolFor(s.Source.Labels()); err != nil {
			return nil, err
		}
	}
	proposed := cut.Propose(ctx, pool)
	if apply {
		cut.Tick(ctx)
		s.tellCut(cut)
		for i, left := range cut.Propose(ctx, pool) {
			done := slices.DeleteFunc(proposed[i].Steps, func(s string) bool { return slices.Contains(left.Steps, s) })
			proposed[i].Steps, proposed[i].PendingReason = done, left.PendingReason
		}
	}
	return proposed, nil
}
