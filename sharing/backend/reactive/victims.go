// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reactive

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// holdings are what one grant holds of a GPU.
type holdings struct {
	uses    []Use
	keepers []Process
	bytes   sharing.Bytes
	// inferred is the part of bytes that is only believed to be the grant's.
	inferred sharing.Bytes
	// known is false if one part is not.
	known bool
}

func holdingsOf(grant GrantID, g GPU) holdings {
	h := holdings{known: g.Told && !slices.Contains(g.Unclear, grant)}
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
	for _, k := range g.Keepers {
		if k.Grant == grant {
			h.keepers = append(h.keepers, k.Process)
		}
	}
	return h
}

// kill names the processes to end: none if the rule names nobody who was in the sample before. more is false when what
// the processes that were named already hold, or keep, and what returns by itself, is all that is too much.
func (w *Watch) kill(v Verdict, h holdings, before map[Process]bool, fresh func(Use) bool) (verdicts []Verdict, more bool) {
	left, keeping := h.bytes, w.unnamed(h.keepers)
	var worst *Use
	for _, u := range h.uses {
		switch {
		case w.named[u.Process], u.Ended && len(h.keepers) > 0 && len(keeping) == 0, len(h.keepers) == 0 && fresh(u):
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
		v.Keeps, victims = true, keeping
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
