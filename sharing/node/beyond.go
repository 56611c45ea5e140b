// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// beyond says where the processes of a lease hold more than their cap, and what holds the lease does not count it: under the
// driver's limit what others made and handed over, and what the driver takes for a program that counts its memory by itself.
// Managed memory is not among it: no process is listed with that, see unlistedOn. The watch finds the rest, where there is one. A cap of which something is held beyond is not told as kept. It needs
// the lock.
func (r *Runtime) beyond(gr ledger.Grant, p picture) []string {
	h := r.held[gr.Claim.ID]
	if gr.Lease == nil || h == nil || r.speaker(gr) != gr.Claim.ID {
		return nil
	}
	var slack sharing.Bytes
	var why, remedy string
	switch {
	case h.backend == config.BackendDriver:
		why = "the driver's limit does not count what another grant made and handed over"
		remedy = "give such a program a MIG instance or a whole GPU"
	case h.backend == config.BackendLibkerf && !r.watches(gr):
		slack = contextSlack // of a context and its modules, before they are counted
		why = "the driver took it for the program, which libkerf is not asked for"
		remedy = "put reactive behind libkerf in the pool's backends to have it watched"
	default:
		return nil
	}
	var out []string
	for _, f := range gr.Caps() {
		if f.Whole {
			continue
		}
		held, known := p.byProcess(gr.Claim.ID, f.GPU)
		if most, err := f.Memory.Add(slack); !known || err != nil || held <= most {
			continue
		}
		out = append(out, fmt.Sprintf("grant %s: its processes hold %s of GPU %d, and its cap is %s: %s, and nothing ends it; %s",
			gr.Claim.ID, held, r.gpu(f.GPU).Index, f.Memory, why, remedy))
	}
	return out
}
