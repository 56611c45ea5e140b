// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// owners are the grants to which the entries of the driver's lists may belong: those with a lease. It needs the lock.
func (r *Runtime) owners(grants []ledger.Grant) []lists.Grant {
	out := make([]lists.Grant, 0, len(grants))
	for _, g := range grants {
		h := r.held[g.Claim.ID]
		if g.Lease == nil || h == nil {
			continue
		}
		out = append(out, lists.Grant{
			Owner: listing.Owner(g.Claim.ID), Cgroup: g.Lease.Cgroup, Procs: h.group.Procs,
			On: func(gpu sharing.GPUID) bool { return touches(g.Claim.Placement, gpu) },
		})
	}
	return out
}

// endedUse is what processes of a grant held of a GPU that have ended, and who keeps it.
type endedUse struct {
	bytes sharing.Bytes
	// inferred is true if the grant is only the one that could have made it.
	inferred bool
	keepers  []int
	// unread is why who keeps it could not be told.
	unread error
}

// endedUses finds what grants are charged with whose processes have ended.
func endedUses(l *lists.Lists, looks []lists.Look, grants []lists.Grant) map[capKey]endedUse {
	out := map[capKey]endedUse{}
	for _, look := range looks {
		for _, g := range grants {
			c := look.Charge(g.Owner)
			if c.Ended == 0 {
				continue
			}
			use := endedUse{bytes: c.Ended, inferred: c.Inferred > 0}
			keepers, err := l.Keepers(look, g)
			for _, p := range keepers {
				use.keepers = append(use.keepers, p.PID)
			}
			slices.Sort(use.keepers)
			use.unread = err
			out[capKey{ledger.ClaimID(g.Owner), look.GPU}] = use
		}
	}
	return out
}

// sentence says it to people.
func (u endedUse) sentence(id ledger.ClaimID, gpu int) string {
	text := fmt.Sprintf("grant %s: %s of GPU %d belongs to processes that have ended", id, u.bytes, gpu)
	switch {
	case u.unread != nil:
		text += fmt.Sprintf("; Kerf cannot tell which processes keep the GPU's files open: %s", sharing.Plain(u.unread))
	case len(u.keepers) == 0:
		text += "; no process of the grant has the GPU's files open, so another process keeps them open"
	case len(u.keepers) == 1:
		text += fmt.Sprintf("; PID %d keeps the GPU's files open", u.keepers[0])
	default:
		text += fmt.Sprintf("; PIDs %s keep the GPU's files open", numbers(u.keepers))
	}
	if u.inferred {
		text += "; no other grant has such a process"
	}
	return text
}

// unclearWhy says why it cannot be told what a grant holds of a look's GPU; empty if it can be, or the driver does not tell.
func unclearWhy(look lists.Look, gpu int, grants ...listing.Owner) string {
	for _, line := range look.Lines {
		if line.Kind != listing.Unclear || !line.May(grants...) {
			continue
		}
		if look.Untold != nil {
			return fmt.Sprintf("process %d, which is listed on GPU %d, cannot be read: %v", line.PID, gpu, look.Untold)
		}
		if len(line.Suspects) == 0 {
			return fmt.Sprintf("process %d, which is listed on GPU %d, cannot be read", line.PID, gpu)
		}
		return fmt.Sprintf("process %d, which is listed on GPU %d, has the number of one that has ended, and the driver lists both as one", line.PID, gpu)
	}
	return ""
}
