// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// sharePlan is a reason why shares of GPUs would be rejected.
type sharePlan struct {
	Indexes []int  `json:"indexes"`
	Why     string `json:"why"`
}

// configured is a config and the pool of a node in it.
type configured struct {
	config.Config
	pool config.Pool
}

// rejectedShares are the GPUs of a report whose shares the new config would reject for their enforcement level. Where another
// list of backends would be used, only the agent can tell the level, once it applies the config.
func rejectedShares(before, after configured, s gpunode.Status) []sharePlan {
	var out []sharePlan
	for _, g := range s.GPUs {
		why := rejectedShare(before, after, g)
		if why == "" {
			continue
		}
		i := slices.IndexFunc(out, func(p sharePlan) bool { return p.Why == why })
		if i < 0 {
			i, out = len(out), append(out, sharePlan{Why: why})
		}
		out[i].Indexes = append(out[i].Indexes, g.Index)
	}
	return out
}

func rejectedShare(before, after configured, g gpunode.GPU) string {
	gpu := sharing.GPU{UUID: sharing.GPUID(g.UUID), Index: g.Index, Model: g.Model, MIG: g.MIG, MIGCapable: g.MIG || g.MIGState != nil}
	was, set := before.pool.Of(gpu), after.pool.Of(gpu)
	mode := set.Mode
	if mode == config.ModeAuto {
		mode = after.pool.Mode
	}
	known := len(g.Levels) > 0 && slices.Equal(before.BackendsOn(was, before.pool, ""), after.BackendsOn(set, after.pool, ""))
	if set.Exclude || !mode.Shared() || g.MIG || gpu.UUID.IsPart() || !known {
		return ""
	}
	demanded, level := after.pool.MinLevelOf(set), sharing.ShareLevel(sharing.ParseLevels(g.Levels))
	reason := ""
	if g.LevelReason != "" {
		reason = " (" + g.LevelReason + ")"
	}
	switch {
	case level.AtLeast(sharing.LeastOfShare(demanded)):
		return ""
	case demanded == sharing.LevelUnknown:
		return fmt.Sprintf("no backend is known to enforce them%s; %s", reason, sharing.AllowUnenforced)
	}
	return fmt.Sprintf("their level is %s, and %s is demanded%s", level, demanded, reason)
}

func (p sharePlan) write(b *strings.Builder) {
	var gpus []string
	for _, i := range p.Indexes {
		gpus = append(gpus, fmt.Sprint(i))
	}
	fmt.Fprintf(b, "  shares GPU %s: rejected: %s\n", strings.Join(gpus, ", "), p.Why)
}
