// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// mostEvictions is how many are asked for at once; the others are asked for at a later look.
const mostEvictions = 4

// evict has the pod of a lease that is over its cap evicted. What is in the way is shown; it is tried again while the
// lease is over its cap.
func (g *guard) evict(ctx context.Context, gr ledger.Grant, v reactive.Verdict) {
	if gr.Lease == nil || !gr.Claim.Owner.Pod() {
		return // it has ended
	}
	pod := gr.Claim.Owner.Namespace + "/" + gr.Claim.Owner.PodName
	g.evictions.TryGo(func() error {
		err := g.r.notify.Evict(ctx, gr, v.Reason.String())
		g.noteViolation(gr, v, err)
		sentence := ""
		if err != nil {
			sentence = fmt.Sprintf("pod %s is over its cap and cannot be evicted (overCap: evict): %v", pod, err)
		}
		g.r.mu.Lock()
		_, there := g.r.held[gr.Claim.ID]
		if there {
			g.r.conditions.SetOf(conditions.Evict, string(v.Lease), sentence)
		}
		g.r.mu.Unlock()
		if err != nil {
			g.r.log.Error("pod that is over its cap not evicted", "pod", pod, "claim", v.Lease, "error", err.Error())
			return nil
		}
		g.r.log.Warn("pod evicted", "reason", v.Reason.String(), "pod", pod, "gpu", string(v.GPU), "claim", v.Lease,
			"holds_bytes", uint64(v.Held), "cap_bytes", uint64(v.Cap), "for_at_most", v.Delay.String())
		g.tellPodOf(ctx, gr, v, fmt.Sprintf("its pod is evicted (%s)", g.ruleOf(v)))
		return nil
	})
}
