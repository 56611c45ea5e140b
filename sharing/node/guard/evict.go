// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// mostEvictions is how many evictions run at once. A later check asks for the others.
const mostEvictions = 4

// evict evicts the pod of a grant over its cap, in the background. If that fails, a warning stays until the grant is
// within its cap; the verdict comes again while it is over it.
func (g *Guard) evict(ctx context.Context, gr Grant, v reactive.Verdict, rule string) {
	if gr.Active == nil || !gr.Owner.Pod() {
		return // it has ended
	}
	pod := gr.Owner.Namespace + "/" + gr.Owner.PodName
	g.evictions.TryGo(func() error {
		err := g.opt.Notify.Evict(ctx, *gr.Grant, v.Reason.String())
		g.noteViolation(gr, v, err)
		sentence := ""
		if err != nil {
			sentence = fmt.Sprintf("pod %s is over its cap and cannot be evicted (onOverCap: evict): %v", pod, err)
		}
		if _, there := g.opt.View().grant(gr.ID); there {
			g.opt.Conditions.SetOf(conditions.Evict, string(v.Grant), sentence)
		}
		if err != nil {
			g.opt.Log.Error("failed to evict pod over its cap", "pod", pod, "grant", v.Grant, "error", err.Error())
			return nil
		}
		g.opt.Log.Warn("evicted pod", "reason", v.Reason.String(), "pod", pod, "gpu", v.GPU.String(), "grant", v.Grant,
			"used_bytes", uint64(v.Used), "cap_bytes", uint64(v.Cap), "detection", v.Delay.String())
		g.notifyPod(ctx, gr, v, fmt.Sprintf("Kerf evicts the pod (%s)", rule))
		return nil
	})
}
