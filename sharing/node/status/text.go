// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// Worse returns the health that is further from healthy; unknown stands between healthy and suspect.
func Worse(a, b sharing.Health) sharing.Health {
	rank := func(h sharing.Health) int {
		switch h {
		case sharing.HealthOK:
			return 0
		case sharing.HealthSuspect:
			return 2
		case sharing.HealthUnhealthy:
			return 3
		case sharing.HealthLost:
			return 4
		case sharing.HealthUnknown:
		}
		return 1
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// WeakShares are warnings of GPUs whose shares the default rejects, or has enforced by the reactive backend because
// libkerf is not available. Equal ones are one sentence.
func WeakShares(gpus []GPU) []string {
	var order []string
	on := map[string][]string{}
	for _, g := range gpus {
		text := weakShare(g)
		if text == "" {
			continue
		}
		if on[text] == nil {
			order = append(order, text)
		}
		on[text] = append(on[text], strconv.Itoa(g.Index))
	}
	for i, text := range order {
		order[i] = "GPU " + strings.Join(on[text], ", ") + ": " + text
	}
	return order
}

func weakShare(g GPU) string {
	level := sharing.ShareLevel(g.Levels)
	libkerf := slices.IndexFunc(g.Backends, func(b Backend) bool {
		return backend.PropertiesOf(b.Backend).Counts &&
			b.Listed
	})
	switch {
	case g.MIG || g.SystemMemory || len(g.Levels) == 0 || len(g.Backends) == 0:
		return ""
	case level == sharing.LevelReactive && libkerf >= 0:
		return "shares have level reactive only: " + g.LevelReason
	case level < sharing.LevelReactive && g.MinLevel == sharing.LevelUnknown:
		return fmt.Sprintf("shares are rejected, because no backend is known to enforce them: %s; %s", g.LevelReason,
			sharing.AllowUnenforced)
	}
	return ""
}
