// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package configplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	gpureport "github.com/kerf-gpu/kerf/sharing/allocator/report"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Text is the plan for people.
func (p Plan) Text() string {
	var b strings.Builder
	p.Header(&b)
	for _, n := range p.Nodes {
		n.write(&b)
	}
	for _, l := range p.Left {
		fmt.Fprintf(&b, "\nnote: %s\n", l)
	}
	return b.String()
}

func (n NodePlan) write(b *strings.Builder) {
	pool := n.After
	if n.Before != n.After {
		pool = n.Before + " -> " + n.After
	}
	switch {
	case n.Refused != "":
		fmt.Fprintf(b, "\nnode %s: would not take it: %s\n", n.Node, n.Refused)
		return
	case n.NotPlanned != "":
		fmt.Fprintf(b, "\nnode %s: cannot be planned: %s\n", n.Node, n.NotPlanned)
		return
	}
	fmt.Fprintf(b, "\nnode %s (pool %s)", n.Node, pool)
	switch n.Applied {
	case inLastGood:
		fmt.Fprintf(b, ", from its last known good config %s, since it rejected the ConfigMap's", short(n.SHA256))
	case inBuiltIn:
		b.WriteString(", from the built-in default")
	case inNothing:
		b.WriteString(", from nothing: it grants nothing until a config is valid")
	case inOtherState:
		fmt.Fprintf(b, ", from the ConfigMap's text, though the node applies sha256 %s", short(n.SHA256))
	}
	if len(n.Now)+len(n.Pending)+len(n.New) == 0 {
		b.WriteString(": no GPU changes\n")
	} else {
		b.WriteString(":\n")
	}
	for _, s := range n.Now {
		fmt.Fprintf(b, "  now    GPU %d: %s\n", s.Index, strings.Join(s.What, ", "))
	}
	for _, s := range n.Pending {
		fmt.Fprintf(b, "  waits  GPU %d: %s; for %s\n", s.Index, strings.Join(s.What, ", "), strings.Join(s.For, ", "))
	}
	for _, s := range n.New {
		fmt.Fprintf(b, "  new    GPU %d: %s%s\n", s.Index, strings.Join(s.What, ", "), keeping(s.For))
	}
	for _, s := range n.Shares {
		s.write(b)
	}
	for _, r := range n.Rules {
		whom := r.When
		switch {
		case len(r.Running) == 0:
		case r.AtOnce:
			whom += ", for " + strings.Join(r.Running, ", ") + " as well"
		default:
			whom += keeping(r.Running)
		}
		fmt.Fprintf(b, "  rule   %s (%s)\n", r.change(), whom)
	}
}

// keeping says who keeps what he has.
func keeping(who []string) string {
	switch len(who) {
	case 0:
		return ""
	case 1:
		return "; " + who[0] + " keeps what it has"
	}
	return "; " + strings.Join(who, ", ") + " keep what they have"
}

// ShareReason is a reason why shares of GPUs would be rejected.
type ShareReason struct {
	Indexes []int  `json:"indexes"`
	Reason  string `json:"reason"`
}

// configured is a config and the pool of a node in it.
type configured struct {
	config.Config
	pool config.Pool
}

// rejectedShares are the GPUs of a report whose shares the new config would reject for their enforcement level. Where
// another list of backends would be used, only the agent can tell the level, once it applies the config.
func rejectedShares(before, after configured, s gpunode.Status) []ShareReason {
	var out []ShareReason
	for _, g := range s.GPUs {
		why := rejectedShare(before, after, g)
		if why == "" {
			continue
		}
		i := slices.IndexFunc(out, func(p ShareReason) bool { return p.Reason == why })
		if i < 0 {
			i, out = len(out), append(out, ShareReason{Reason: why})
		}
		out[i].Indexes = append(out[i].Indexes, g.Index)
	}
	return out
}

func rejectedShare(before, after configured, g gpunode.GPU) string {
	gpu := gpureport.Ref(g.UUID).GPU()
	gpu.Index, gpu.Model, gpu.MIG, gpu.MIGCapable = g.Index, g.Model, g.MIG, g.MIG || g.MIGState != nil
	was, set := before.pool.Of(gpu), after.pool.Of(gpu)
	mode := set.Mode
	if mode == config.ModeAuto {
		mode = after.pool.Mode
	}
	known := len(g.Levels) > 0 && slices.Equal(before.BackendsOn(was, before.pool, ""),
		after.BackendsOn(set, after.pool, ""))
	if set.Excluded || !mode.Shared() || g.MIG || gpu.Ref().IsInstance() || !known {
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
	return fmt.Sprintf("their level is %s, and %s is required%s", level, demanded, reason)
}

func (p ShareReason) write(b *strings.Builder) {
	var gpus []string
	for _, i := range p.Indexes {
		gpus = append(gpus, fmt.Sprint(i))
	}
	fmt.Fprintf(b, "  shares GPU %s: rejected: %s\n", strings.Join(gpus, ", "), p.Reason)
}
