// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// weakShares are warnings of GPUs whose shares the default rejects, or has enforced by the reactive backend because libkerf is
// not available. Equal ones are one sentence.
func weakShares(gpus []GPUState) []string {
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

func weakShare(g GPUState) string {
	level := sharing.ShareLevel(g.Levels)
	libkerf := slices.IndexFunc(g.Backends, func(b BackendState) bool { return b.Backend == sharing.BackendLibkerf && b.Listed })
	switch {
	case g.MIG || len(g.Levels) == 0 || len(g.Backends) == 0:
		return ""
	case level == sharing.LevelReactive && libkerf >= 0:
		return "shares have level reactive only: " + g.LevelReason
	case level < sharing.LevelReactive && g.MinLevel == sharing.LevelUnknown:
		return fmt.Sprintf("shares are rejected, because no backend is known to enforce them: %s; %s", g.LevelReason, sharing.AllowUnenforced)
	}
	return ""
}
