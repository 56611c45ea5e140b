// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"time"
)

// WhatIf is a change that is thought through and not made.
type WhatIf struct {
	// Without are the UIDs of pods whose claims and plans are thought away.
	Without []string
	// With are pods that are thought to be there already, placed one after the other before the pod in question. One that
	// does not fit takes nothing.
	With []Want
}

// FitIf is Fit after a change that is not made. Claims of pods that are thought away count as given back at once.
func (j *judge) FitIf(w Want, name string, change WhatIf, now time.Time) Verdict {
	if len(change.Without) == 0 && len(change.With) == 0 {
		return j.Fit(w, name, now)
	}
	n := j.nodes[name]
	if v, ok := trusted(n, now); !ok {
		return v
	}
	j.refresh()
	s := j.books(n).clone()
	for _, uid := range slices.Sorted(slices.Values(change.Without)) {
		s.release(uid)
	}
	for _, other := range change.With {
		if other.UID == w.UID {
			continue
		}
		for _, c := range j.fit(n, s, other, now).Plan {
			s.take(other.UID, c.Placement)
		}
	}
	return j.fit(n, s, w, now)
}
