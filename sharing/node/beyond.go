// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// beyond says where the processes of a lease hold more than their cap, and what holds the lease does not count it: under the
// driver's limit what others made and handed over, and what the driver takes for a program that counts its memory by itself.
// Managed memory is not among it: no process is listed with that, see observe.Sample.Unattributed. The watch finds the rest, where there is one. A cap of which something is held beyond is not told as kept. It needs
// the lock.
func (r *Runtime) beyond(gr ledger.Grant, p observe.Sample) []string {
	if gr.Lease == nil || r.speaker(gr) != gr.Claim.ID {
		return nil
	}
	way := backend.PropertiesOf(gr.Claim.Backend)
	if way.Misses == "" || way.Watch == backend.WatchListed && r.watches(gr) {
		return nil
	}
	var slack sharing.Bytes
	if way.Counts {
		slack = guard.ContextSlack // of a context and its modules, before they are counted
	}
	var out []string
	for _, f := range gr.Caps() {
		if f.Whole {
			continue
		}
		held, known := p.ByProcess(gr.Claim.ID, f.GPU)
		if most, err := f.Memory.Add(slack); !known || err != nil || held <= most {
			continue
		}
		out = append(out, fmt.Sprintf("grant %s: its processes hold %s of GPU %d, and its cap is %s: %s, and nothing ends it; %s",
			gr.Claim.ID, held, r.gpu(f.GPU).Index, f.Memory, way.Misses, way.Remedy))
	}
	return out
}
