// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// evictDeadline bounds one request for an eviction.
	evictDeadline = 10 * time.Second
	// mostEvictions is how many are asked for at once; the others are asked for at a later look.
	mostEvictions = 4
)

// EvictPods registers f, which has a pod deleted with the grace that it asks for. It returns an error where that was
// refused, and nil where the pod is on its way or gone. Without it pods are dealt with as by kill. Register before Run.
func (r *Runtime) EvictPods(f func(ctx context.Context, ref sharing.ContainerRef) error) {
	r.evictPod = f
}

// evict has the pod of a lease that is over its cap evicted. What is in the way is shown; it is tried again while the
// lease is over its cap.
func (g *guard) evict(ctx context.Context, v reactive.Verdict) {
	gr, ok := g.grantOf(v.Lease)
	if !ok || gr.Lease == nil || !gr.Claim.Owner.Pod() {
		return // it has ended
	}
	o := gr.Claim.Owner
	ref := sharing.ContainerRef{PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName, Container: gr.Lease.Container}
	g.evictions.TryGo(func() error {
		ctx, cancel := context.WithTimeout(ctx, evictDeadline)
		defer cancel()
		err := g.r.evictPod(ctx, ref)
		g.r.opt.Observer.Evicted(v.Reason.String(), err)
		g.noteViolation(v, err)
		sentence := ""
		if err != nil {
			sentence = fmt.Sprintf("pod %s/%s is over its cap and cannot be evicted (overCap: evict): %v", ref.Namespace, ref.Pod, err)
		}
		g.r.mu.Lock()
		_, there := g.r.held[gr.Claim.ID]
		if there {
			g.r.conditions.SetOf(conditions.Evict, string(v.Lease), sentence)
		}
		g.r.mu.Unlock()
		if err != nil {
			g.r.log.Error("pod that is over its cap not evicted", "pod", ref.Namespace+"/"+ref.Pod, "claim", v.Lease, "error", err.Error())
			return nil
		}
		g.r.log.Warn("pod evicted", "reason", v.Reason.String(), "pod", ref.Namespace+"/"+ref.Pod, "gpu", string(v.GPU), "claim", v.Lease,
			"holds_bytes", uint64(v.Held), "cap_bytes", uint64(v.Cap), "for_at_most", v.Delay.String())
		g.tellPodOf(ctx, v, fmt.Sprintf("its pod is evicted (%s)", g.ruleOf(v)))
		return nil
	})
}
