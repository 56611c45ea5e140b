// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// gpuUsage is the usage of a GPU by one grant.
type gpuUsage struct {
	uses      []Use
	retainers []Process
	bytes     sharing.Bytes
	// inferred is the part of bytes that is only believed to be the grant's.
	inferred sharing.Bytes
	// known is false if one part is not.
	known bool
}

func gpuUsageOf(grant GrantID, g GPU) gpuUsage {
	h := gpuUsage{known: g.Answered && !slices.Contains(g.Unclear, grant)}
	for _, u := range g.Uses {
		if u.Grant != grant {
			continue
		}
		h.uses = append(h.uses, u)
		sum, err := h.bytes.Add(u.Bytes)
		if err != nil || !u.Known {
			h.known = false
			continue
		}
		h.bytes = sum
		if u.Inferred {
			h.inferred += u.Bytes // a part of the sum
		}
	}
	for _, k := range g.Retainers {
		if k.Grant == grant {
			h.retainers = append(h.retainers, k.Process)
		}
	}
	return h
}

// kill names the processes to end, or none if the rule names only processes that the previous sample lacks. If named
// victims and returning memory account for the whole excess, more is false.
func (w *Watch) kill(v Verdict, h gpuUsage, before map[Process]bool, fresh func(Use) bool) (verdicts []Verdict,
	more bool) {
	left, keeping := h.bytes, w.unnamed(h.retainers)
	var worst *Use
	for _, u := range h.uses {
		switch {
		case w.named[u.Process], u.Ended && len(h.retainers) > 0 && len(keeping) == 0, len(h.retainers) == 0 &&
			fresh(u):
			left -= u.Bytes // a part of the sum that it is
		case !before[u.Process] || u.Bytes == 0 || worst != nil && worse(u, *worst) <= 0:
		case !u.Ended:
			worst = &u
		case !u.Inferred && slices.ContainsFunc(keeping, func(p Process) bool { return before[p] }):
			worst = &u
		}
	}
	if left <= v.Cap || worst == nil {
		return nil, left > v.Cap
	}
	victims := []Process{worst.Process}
	if worst.Ended {
		v.Orphaned, victims = true, keeping
	}
	for _, p := range victims {
		if !before[p] {
			continue
		}
		v.Victim, w.named[p] = p, true
		verdicts = append(verdicts, v)
		v.First = false
	}
	return verdicts, true
}

// unnamed are those that are not on their way.
func (w *Watch) unnamed(all []Process) (out []Process) {
	for _, p := range all {
		if !w.named[p] {
			out = append(out, p)
		}
	}
	return out
}
