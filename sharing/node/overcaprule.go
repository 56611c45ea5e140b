// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// overCapRule names what decides about a grant over its cap: the action, and the profile or pool that sets it.
func overCapRule(c config.Config, pool config.Pool, profile string) string {
	rule := "overCap: " + c.OverCapOf(pool, profile).String()
	switch p, ok := c.Profile(profile); {
	case ok && p.OverCap != config.OverCapDefault:
		return rule + " of profile " + profile
	case pool.OverCap != config.OverCapDefault:
		return rule + " of pool " + pool.Name
	}
	return rule + ", the default"
}

// ruleOf is the rule by which a verdict about a grant over its cap was chosen.
func (g *guard) ruleOf(v reactive.Verdict) string {
	gr, _ := g.grantOf(v.Lease)
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	return overCapRule(g.r.config, g.r.pool, gr.Claim.Request.Profile)
}

// victimName is a process as events name it: its PID on the node, and its program while it can be read.
func victimName(pid int) string {
	program, err := process.Program(pid)
	if err != nil {
		return fmt.Sprintf("process %d of the node", pid)
	}
	return fmt.Sprintf("process %d (%s) of the node", pid, path.Base(program))
}
