// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

const (
	// ResizedReason of a pod: an administrator changed the memory of a running container. The event is no
	// warning.
	ResizedReason = "GPUMemoryResized"
	// ResizeFailedReason of a pod: a memory change by an administrator failed. The message has the reason. Nothing
	// changed.
	ResizeFailedReason = "GPUMemoryResizeFailed"

	// resizePause is the least time between two readings, and resizeRetry that between two tries after a failure. The
	// audit log has each try.
	resizePause = time.Second
	resizeRetry = 30 * time.Second
)

// resizer gives running containers the memory that an administrator sets in the spec of the node's GPUNode.
type resizer struct {
	log *slog.Logger
	// changed, grants and config are the runtime's, as is resize.
	changed func() <-chan struct{}
	grants  func() []ledger.Grant
	config  func() config.Config
	resize  func(ctx context.Context, by lifecycle.Peer, id ledger.GrantID, memory sharing.Bytes) error
	event   func(ctx context.Context, ref sharing.ContainerRef, reason, message string, warning bool)
	pause   time.Duration

	mu     sync.Mutex
	wanted []gpunode.GrantMemory
	// failed has the last failure of each entry. Only run uses it.
	failed map[gpunode.GrantMemory]resizeFailure
}

// resizeFailure is why a container keeps its memory, and when the agent tries again.
type resizeFailure struct {
	why  string
	next time.Time
}

// want takes the entries of the spec.
func (r *resizer) want(entries []gpunode.GrantMemory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = slices.Clone(entries)
}

// run resizes until ctx ends: after each change of the spec, and of the node for what did not fit before.
func (r *resizer) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := r.changed()
		r.once(ctx)
		var again <-chan time.Time
		if len(r.failed) > 0 {
			again = time.After(resizeRetry)
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-changed:
			sleep.For(ctx, r.pause)
		}
	}
}

func (r *resizer) once(ctx context.Context) {
	r.mu.Lock()
	wanted := slices.Clone(r.wanted)
	r.mu.Unlock()
	failed := map[gpunode.GrantMemory]resizeFailure{}
	for _, w := range wanted {
		if f := r.give(ctx, w); f.why != "" {
			failed[w] = f
		}
	}
	r.failed = failed
}

// give resizes one container. It returns why that failed; the zero value if there is nothing to say.
func (r *resizer) give(ctx context.Context, w gpunode.GrantMemory) resizeFailure {
	before := r.failed[w]
	c := decide(w, r.grants(), r.config())
	if !c.differs {
		return resizeFailure{}
	}
	err, next := c.reject, time.Time{}
	if err == nil {
		if time.Now().Before(before.next) {
			return before
		}
		next = time.Now().Add(resizeRetry)
		by := lifecycle.Peer{PID: os.Getpid()} // in the name of the administrator who may write the spec
		err = r.resize(ctx, by, c.grant.ID, c.to)
	}
	o := c.grant.Owner
	ref := sharing.ContainerRef{PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName, Container: o.Container}
	if err == nil {
		r.event(ctx, ref, ResizedReason, fmt.Sprintf("The memory of container %s is %s, was %s.", o.Container, c.to,
			c.from), false)
		return resizeFailure{}
	}
	why := sharing.Plain(err)
	if before.why != why {
		r.log.WarnContext(ctx, "failed to resize grant of a pod", "pod", ref.String(), "requested", c.to.String(),
			"error", err.Error())
		r.event(ctx, ref, ResizeFailedReason, fmt.Sprintf("The memory of container %s stays %s instead of %s: %s.",
			o.Container, c.from, c.to, why), true)
	}
	return resizeFailure{why, next}
}

// resizeDecision is what an entry of the spec means for the grants.
type resizeDecision struct {
	grant    ledger.Grant
	from, to sharing.Bytes
	// differs is false if there is no such container, or it has that memory.
	differs bool
	// reject says why the config forbids it.
	reject error
}

// decide finds the grant of an entry, and asks the profile for its bound. It is pure.
func decide(w gpunode.GrantMemory, grants []ledger.Grant, conf config.Config) resizeDecision {
	i := slices.IndexFunc(grants, func(g ledger.Grant) bool {
		return g.Owner.PodUID == w.PodUID && g.Owner.Container == w.Container
	})
	if i < 0 || w.PodUID == "" {
		return resizeDecision{}
	}
	d := resizeDecision{grant: grants[i]}
	d.from, _ = d.grant.Placement.Total()
	to, err := sharing.GiB.Mul(uint64(max(w.MemoryGiB, 0)))
	d.to, d.differs = to, to != d.from || err != nil
	name := d.grant.Request.Profile
	if name == "" || !d.differs || err != nil {
		d.reject = err
		return d
	}
	p, found := conf.Profile(name)
	most := mostMemory(p).SubFloor(ofOthers(d.grant, grants, p))
	switch {
	case !found:
		d.reject = fmt.Errorf("the config has no profile %q: %w", name, sharing.ErrDenied)
	case to > most:
		d.reject = fmt.Errorf("profile %q allows at most %s: %w", name, most, sharing.ErrDenied)
	}
	return d
}

// ofOthers is the memory of the pod's other containers with the profile, if the profile bounds the whole pod.
func ofOthers(g ledger.Grant, grants []ledger.Grant, p config.Profile) (sum sharing.Bytes) {
	if p.MaxPerPod == 0 {
		return 0
	}
	for _, o := range grants {
		same := o.Owner.PodUID == g.Owner.PodUID && o.Request.Profile == p.Name
		if same && o.ID != g.ID {
			has, _ := o.Placement.Total()
			sum += has // Both are on this node.
		}
	}
	return sum
}

// mostMemory is the most memory to which an administrator may resize one container with the profile: maxMemoryPerPod,
// else maxBurstMemory, else memory. It is 0 if the profile has none of them.
func mostMemory(p config.Profile) sharing.Bytes {
	switch {
	case p.MaxPerPod != 0:
		return p.MaxPerPod
	case p.Burst.Memory != 0:
		return max(p.Burst.Memory, p.Memory)
	case p.Burst.Percent != 0:
		hi, lo := bits.Mul64(uint64(p.Memory), uint64(p.Burst.Percent))
		if hi >= 100 { // else the quotient is past 64 bits
			return p.Memory
		}
		most, _ := bits.Div64(hi, lo, 100)
		return sharing.Bytes(most)
	}
	return p.Memory
}
