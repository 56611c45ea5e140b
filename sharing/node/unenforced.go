// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
)

// consents reports whether the process accepts a share that no backend enforces. The config must allow it, too.
func consents(asked sharing.Request) bool { return asked.MinLevel == sharing.LevelNone }

// enforced is the request of a process that does not consent, as it is placed.
func enforced(req sharing.Request) sharing.Request {
	if req.Kind == sharing.KindShared {
		req.MinLevel = max(req.MinLevel, sharing.LevelReactive)
	}
	return req
}

// placeEnforced places the request of a process that does not consent. Where only its consent is missing, the error asks for it.
func placeEnforced(
	req sharing.Request, place func(sharing.Request) (sharing.Placement, choice.Choice, error),
) (sharing.Placement, choice.Choice, error) {
	p, held, err := place(enforced(req))
	if err == nil {
		return p, held, nil
	}
	without, held, less := place(req)
	if less != nil {
		return nil, choice.Choice{}, less // it demands no more than the config, and so names the remedy of the admin
	}
	return nil, choice.Choice{}, fmt.Errorf("no backend enforces %s on %s (level %s: %s); add --level none to accept that: %w",
		req, strings.Join(gpuIDs(without), ", "), held.Level, held.Why, sharing.ErrUnsupported)
}

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
