// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/startcheck"
)

// CapRaisedReason of a pod: another program raised the driver's limit of a container after Kerf had set it.
const CapRaisedReason = "GPUMemoryCapRaised"

var _ startcheck.Node = (*Caps)(nil)

// ReadLimits reads the driver's limits of an activated container. They are the caps on its own GPUs, and the least
// limit on all others that had it then. If the driver limits no memory, there are none. The error is
// sharing.ErrNotFound if the container has no active grant. It is sharing.ErrUnavailable if no driver answers or a GPU
// of the grant takes no limit now.
func (r *Caps) ReadLimits(ctx context.Context, containerID string) ([]startcheck.Limit, error) {
	id, err := r.settled(ctx, containerID)
	if err != nil {
		return nil, err
	}
	if capping := r.Handles.Capping(id); capping != nil {
		capping.Lock()
		defer capping.Unlock()
	}
	g, _ := r.Store.Get(id)
	att := r.Driver.Get()
	var limited []sharing.GPURef
	if g.Active != nil { // one of these GPUs that is lost, or in MIG mode by now, has no limit
		limited = slices.DeleteFunc(slices.Clone(g.Active.Limited),
			func(gpu sharing.GPURef) bool { return !r.TakesLimit(gpu) })
	}
	switch {
	case g.Active == nil || g.Active.ContainerID != containerID:
		return nil, fmt.Errorf("container %q: no hook activated its grant %q: %w", containerID, id, sharing.ErrNotFound)
	case att == nil:
		return nil, fmt.Errorf("container %q: no driver answers: %w", containerID, sharing.ErrUnavailable)
	case att.Caps == nil:
		return nil, nil
	}
	limits, err := r.limitsOf(*att, g, limited)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", containerID, err)
	}
	var group sync.WaitGroup
	for i := range limits {
		l := &limits[i]
		group.Go(func() { l.Have, _, l.Err = att.Caps.Read(ctx, g.Active.Cgroup, l.GPU) })
	}
	group.Wait()
	return limits, nil
}

// settled is the grant of a container, once no resize is in progress.
func (r *Caps) settled(ctx context.Context, containerID string) (ledger.GrantID, error) {
	for {
		g, known := r.Store.ByContainerID(containerID)
		if !known {
			return "", fmt.Errorf("container %q has no grant: %w", containerID, sharing.ErrNotFound)
		}
		if g.Work == ledger.NoWork {
			return g.ID, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("container %q: grant %q is %w", containerID, g.ID, ErrBusy)
		case <-time.After(BusyPoll):
		}
	}
}

// limitsOf are the limits that applyCaps set for an attachment, not read yet. limited are the GPUs that are not part of
// it.
func (r *Caps) limitsOf(att gpudriver.Attached, g ledger.Grant, limited []sharing.GPURef) ([]startcheck.Limit, error) {
	caps := g.Caps()
	if g.SharedCap != nil {
		caps = nil // no limit of one cgroup is its cap
	}
	own := r.cappable(caps)
	if g.Level == sharing.LevelDriver && len(own) != len(caps) {
		return nil, fmt.Errorf("a GPU of grant %q takes no memory limit now: %w", g.ID, sharing.ErrUnavailable)
	}
	var limits []startcheck.Limit
	for _, f := range own {
		limits = append(limits, startcheck.Limit{GPU: f.GPU, Desired: f.Memory, Slack: capSlack})
	}
	for _, gpu := range limited {
		limits = append(limits, startcheck.Limit{GPU: gpu, Desired: att.Caps.Least(), Slack: capSlack, Other: true})
	}
	return limits, nil
}

// RestoreLimits sets the limits of a container again that another program changed. What the container took meanwhile
// is charged to no limit, so from now on its level is unknown, for the reason why. Its pod gets an event.
func (r *Caps) RestoreLimits(ctx context.Context, containerID, why string) error {
	g, known := r.Store.ByContainerID(containerID)
	if !known {
		return fmt.Errorf("container %q has no grant: %w", containerID, sharing.ErrNotFound)
	}
	if err := r.doubt(ctx, g.ID, containerID, why); err != nil {
		return err
	}
	r.verifyOne(ctx, g.ID)
	return nil
}

// doubt makes the level of a grant unknown while this container runs, for the reason why, and sends its pod an event.
func (r *Caps) doubt(ctx context.Context, id ledger.GrantID, containerID, why string) error {
	var g ledger.Grant
	err := r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if !l.SetChecks(id, containerID, func(c *ledger.Checks) { c.Doubt = why }) {
			return fmt.Errorf("grant %q of container %q: %w", id, containerID, sharing.ErrNotFound)
		}
		g, _ = l.Get(id)
		return nil
	})
	if err != nil {
		return err
	}
	r.Log.Warn("another program raised the cap of a grant", "grant", id, "container", containerID, "reason", why)
	r.Announce()
	r.Notify.Pod(ctx, g, CapRaisedReason, why)
	return nil
}
