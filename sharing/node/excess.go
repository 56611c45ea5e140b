// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// excessOf says on which GPU a lease holds more than its cap and one context, so that what is to enforce the cap does not;
// "" if on none. GPUs that held lacks keep what was said before. It needs the lock.
func (r *Runtime) excessOf(gr ledger.Grant, held map[sharing.GPUID]sharing.Bytes, before string) string {
	sizes, unknown := r.contextSizes(), false
	for _, f := range gr.Caps() {
		bytes, known := held[f.GPU]
		unknown = unknown || !known
		context := sizes[f.GPU].Bytes
		if context == 0 { // no driver answers
			context = contextsize.Bound(r.gpu(f.GPU).Model)
		}
		if f.Whole || !overhead.Exceeds(bytes, f.Memory, context) {
			continue
		}
		return fmt.Sprintf("its processes hold %s of GPU %d, more than its cap of %s and a context of %s, so the cap is not enforced",
			bytes, r.gpu(f.GPU).Index, f.Memory, context)
	}
	if unknown {
		return before
	}
	return ""
}

// noteExcess notes whether a lease that counts, or those that share its cap, exceed the cap by what they hold. It reports
// whether a level changes by that. It needs the lock.
func (r *Runtime) noteExcess(id ledger.ClaimID, holds map[sharing.GPUID]sharing.Bytes) (changed bool) {
	for _, gr := range r.sharersOf(id) {
		if h := r.held[gr.Claim.ID]; h != nil && gr.Lease != nil {
			before := h.excess
			h.excess = r.excessOf(gr, holds, before)
			changed = changed || (before == "") != (h.excess == "")
		}
	}
	return changed
}

// noteMPSExcess notes which leases of MPS exceed their cap, which MPS enforces for each process alone. It reports whether a
// level changes by that. It needs the lock.
func (g *guard) noteMPSExcess(standings []reactive.Standing) (changed bool) {
	for _, gr := range g.r.ledger.Grants() {
		h := g.r.held[gr.Claim.ID]
		if h == nil || !backend.PropertiesOf(h.backend).Served {
			continue
		}
		held := map[sharing.GPUID]sharing.Bytes{}
		for _, st := range standings {
			if st.Known && ledger.ClaimID(st.Lease) == gr.Claim.ID {
				held[st.GPU] = st.Held
			}
		}
		before := h.excess
		h.excess = g.r.excessOf(gr, held, before)
		changed = changed || (before == "") != (h.excess == "")
	}
	return changed
}
