// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// rules complete requests, and refuse some.
type rules struct {
	// config is that of the agents; nil when there is none.
	config *config.Config
}

// permitted is false where a rule of a profile refuses the pod now, whatever the node.
func (u *rules) permitted(w Want, now time.Time) (Verdict, bool) {
	if u.config == nil {
		return Verdict{}, true
	}
	for _, a := range w.Asks {
		if err := u.config.Permit(a.Request.Profile, w.Namespace, now); err != nil {
			return Verdict{Reason: Refused, Text: err.Error(), Container: a.Container}, false
		}
	}
	return Verdict{}, true
}

// permittedMemory is the verdict, or a refusal where the containers together have more memory than a profile gives one pod.
func (u *rules) permittedMemory(w Want, v Verdict) Verdict {
	if u.config == nil {
		return v
	}
	totals := map[string]sharing.Bytes{}
	for _, c := range v.Plan {
		i := slices.IndexFunc(w.Asks, func(a Ask) bool { return a.Container == c.Container })
		if i < 0 {
			continue
		}
		profile := w.Asks[i].Request.Profile
		memory, _ := c.Placement.Total()
		sum, err := totals[profile].Add(memory)
		if err == nil {
			err = u.config.PermitMemory(profile, sum)
		}
		if err != nil {
			return Verdict{Reason: Refused, Text: err.Error(), Container: c.Container}
		}
		totals[profile] = sum
	}
	return v
}
