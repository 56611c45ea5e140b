// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// splitGPUs sorts the inventory into the GPUs of the placement, in its order, and the others. A shared MIG instance is
// reached by the device of its GPU, and kept from others by its capability.
func (r *Caps) splitGPUs(p sharing.Placement, att gpudriver.Attached) (own, others []sharing.GPU) {
	byID := make(map[sharing.GPURef]sharing.GPU, len(att.GPUs))
	for _, g := range att.GPUs {
		byID[g.Ref()] = g
	}
	mine := map[sharing.GPUID]bool{}
	for _, f := range p {
		own = append(own, byID[f.GPU])
		mine[f.GPU.UUID] = true
	}
	for _, g := range att.GPUs {
		if !mine[g.UUID] && !g.Ref().IsInstance() {
			others = append(others, g)
		}
	}
	return own, others
}

// applyCaps limits the cgroup on its own GPUs. It sets the least limit on the others, so that nothing depends on what
// the process does about its view of /dev. It returns the other GPUs that are so limited.
func (r *Caps) applyCaps(ctx context.Context, att gpudriver.Attached, level sharing.Level, p sharing.Placement,
	dir string, others []sharing.GPU, runs bool) ([]sharing.GPURef, error) {
	own, rest := r.cappable(p), r.limitable(others)
	if level == sharing.LevelDriver && len(own) != len(p) {
		return nil, fmt.Errorf("the driver can no longer limit memory on every GPU of the grant: %w",
			sharing.ErrUnavailable)
	}
	if att.Caps == nil || len(own)+len(rest) == 0 {
		return nil, nil
	}
	leave, err := r.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	put := att.Caps.Apply
	if runs {
		put = att.Caps.Renew
	}
	return rest, put(ctx, dir, own, rest)
}

// cappable are the shares that take a limit now: not a whole GPU, on a GPU that is present and supports limits.
func (r *Caps) cappable(p sharing.Placement) sharing.Placement {
	var out sharing.Placement
	r.Store.Read(func(l store.Reader) {
		for _, f := range p {
			if !f.Whole && r.canLimit(l, f.GPU) {
				out = append(out, f)
			}
		}
	})
	return out
}

// limitable are the GPUs on which a limit can be set now. One that is lost or does not answer takes none
// until it is back: the verification then sets it. One GPU that hangs must not keep all others from use.
func (r *Caps) limitable(gpus []sharing.GPU) []sharing.GPURef {
	var ids []sharing.GPURef
	r.Store.Read(func(l store.Reader) {
		for _, g := range gpus {
			if r.canLimit(l, g.Ref()) {
				ids = append(ids, g.Ref())
			}
		}
	})
	return ids
}

func (r *Caps) healthOf(id sharing.GPURef) sharing.Health {
	v, _ := r.Store.GPU(id)
	return v.GPU.Health
}

func (r *Core) canLimit(l store.Reader, id sharing.GPURef) bool {
	att := r.Driver.Get()
	if att == nil || !att.Levels[id].Limits() {
		return false
	}
	v, ok := l.GPU(id)
	return ok && !v.GPU.MIG && v.GPU.Health != sharing.HealthLost && v.GPU.Health != sharing.HealthSuspect
}

const (
	// gateWidth is how many cgroups get their caps at once. The driver answers one question about a GPU at a time. More
	// would only alternate, and all of them would be ready as late as the last.
	gateWidth = 2
	// gateTime is how long one keeps its place while others wait: a GPU that answers slowly must hold up its own only.
	gateTime = 10 * time.Millisecond
)

// gate lets callers in as they come, so many at once.
type gate struct {
	places chan struct{}
	time   time.Duration
}

func newGate(width int, keep time.Duration) *gate {
	return &gate{places: make(chan struct{}, width), time: keep}
}

// enter waits for a place, and returns the function that gives it up. The call may come late: the gate takes the place
// back after its time. An error means that ctx ended before; it wraps sharing.ErrUnavailable.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for caps that are being set: %w (%w)", context.Cause(ctx), sharing.ErrUnavailable)
	}
	free := sync.OnceFunc(func() { <-g.places })
	t := time.AfterFunc(g.time, free)
	return func() {
		t.Stop()
		free()
	}, nil
}
