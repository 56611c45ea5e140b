// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package configplan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/mig/manager"
	"github.com/kerf-gpu/kerf/sharing"
	gpureport "github.com/kerf-gpu/kerf/sharing/allocator/report"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// Plan is what a config would change in a cluster.
type Plan struct {
	Diff

	Nodes []NodePlan `json:"nodes"`
}

// NodePlan is what a config would change on one node.
type NodePlan struct {
	Node string `json:"node"`
	// SHA256 is the hash of the applied config, and Applied its source. Errors are why the node rejected a newer one.
	SHA256  string   `json:"sha256"`
	Applied string   `json:"applied"`
	Errors  []string `json:"errors,omitempty"`
	Before  string   `json:"poolBefore"`
	After   string   `json:"poolAfter"`
	// Now is done at once, Pending waits for those who are on the GPU, and New concerns new grants alone.
	Now     []Step `json:"now"`
	Pending []Step `json:"pending"`
	New     []Step `json:"new"`
	// Rules are those of pool, profiles and prices that are of no GPU alone.
	Rules []Rule `json:"rules"`
	// Shares are the GPUs whose shares would be rejected, with the reason.
	Shares []ShareReason `json:"shares,omitempty"`
	// Refused says why the node's agent would reject the config.
	Refused string `json:"rejected,omitempty"`
	// NotPlanned says why nothing can be said of the node.
	NotPlanned string `json:"notPlanned,omitempty"`
}

// Step is what changes on one GPU.
type Step struct {
	Index int      `json:"index"`
	GPU   string   `json:"gpu"`
	What  []string `json:"settings"`
	For   []string `json:"blockedBy,omitempty"`
}

// Rule is a rule that changes, when that counts, and who runs of those whom it is about.
type Rule struct {
	change.Difference

	When    string   `json:"when"`
	AtOnce  bool     `json:"atOnce"`
	Running []string `json:"running,omitempty"`
}

func (r Rule) change() string {
	said := func(s string) string { return cmp.Or(s, "not said") }
	return r.Path + " " + said(r.Before) + " -> " + said(r.After)
}

// Nodes plans each node that has an agent, and says which choices of GPUs mean none of those that there are.
func (x Comparison) Nodes(p *Plan) error {
	gpus := map[string][]sharing.GPU{} // by pool.
	for _, n := range x.cluster.Nodes {
		s, ok := x.status[n.Name]
		if !ok {
			continue
		}
		one, err := x.node(n, s)
		if err != nil {
			return err
		}
		p.Nodes = append(p.Nodes, one)
		if one.After != "" {
			for _, u := range gpuUses(config.Pool{}, s) {
				gpus[one.After] = append(gpus[one.After], u.GPU)
			}
		}
	}
	for _, pool := range x.after.Pools() {
		if len(gpus[pool.Name]) == 0 {
			continue
		}
		for _, choice := range unmatched(pool, gpus[pool.Name]) {
			p.Left = append(p.Left, fmt.Sprintf("pools[%s].%s means no GPU that the pool's nodes report", pool.Name,
				choice))
		}
	}
	slices.SortFunc(p.Nodes, func(a, b NodePlan) int { return strings.Compare(a.Node, b.Node) })
	return nil
}

func (x Comparison) node(n survey.Node, s gpunode.Status) (NodePlan, error) {
	is := x.applied[n.Name]
	out := NodePlan{
		Node: n.Name, SHA256: is.sha256, Applied: is.what, Errors: is.errs, Before: s.Pool,
		Now: []Step{}, Pending: []Step{}, New: []Step{}, Rules: []Rule{},
	}
	if is.what == inOtherState && !x.valid {
		out.NotPlanned = "the config that it applies, sha256 " + short(is.sha256) + ", is not available here"
		return out, nil
	}
	before, after, refused := x.pools(is.document, n.Labels, s.Pool)
	if refused != "" {
		out.Refused = refused
		return out, nil
	}
	out.After = after.Name
	uses := gpuUses(before, s)
	plan := change.Settle(after, uses)
	now, waits := byMIG(before, after, s, uses, plan)
	out.Now, out.Pending = append(out.Now, steps(now)...), append(out.Pending, steps(waits)...)
	out.New = append(out.New, steps(change.NewGrants(before, after, uses))...)
	out.Shares = rejectedShares(configured{is.document, before}, configured{x.after, after}, s)
	rules, err := change.Rules(is.document, x.after, before, after)
	if err != nil {
		return out, fmt.Errorf("plan node %s: %w", n.Name, err)
	}
	for _, r := range rules {
		out.Rules = append(out.Rules, Rule{r.Difference, r.Effect.String(), r.Effect == change.OnAll,
			running(s, r.Profile)})
	}
	return out, nil
}

// pools are the node's pool in the config that it has, and in the new one; refused says why its agent would reject
// that.
func (x Comparison) pools(has config.Config, labels map[string]string, reported string) (before, after config.Pool,
	refused string) {
	before, _ = has.PoolFor(labels)
	after, err := x.after.PoolFor(labels)
	if before.Name == reported || reported == "" {
		if err != nil {
			refused = err.Error()
		}
		return before, after, refused
	}
	// The agent has explicit labels, so it stays in the pool of that name.
	named := func(c config.Config) (config.Pool, bool) {
		pools := c.Pools()
		i := slices.IndexFunc(pools, func(p config.Pool) bool { return p.Name == reported })
		if i < 0 {
			return config.Pool{}, false
		}
		return pools[i], true
	}
	var was, is bool
	before, was = named(has)
	if after, is = named(x.after); was && is {
		return before, after, ""
	}
	return before, after, fmt.Sprintf("its agent says pool %q, which is missing in one of the configs", reported)
}

// holder names who has a grant, for people.
func holder(c gpunode.Grant) string {
	if c.PodUID != "" {
		return c.Namespace + "/" + c.Pod
	}
	return "grant " + c.ID
}

// running are those who have grants on a node; of one profile where one is named.
func running(s gpunode.Status, profile string) []string {
	var out []string
	for _, c := range s.Grants {
		if (profile == "" || c.Profile == profile) && !slices.Contains(out, holder(c)) {
			out = append(out, holder(c))
		}
	}
	return out
}

// gpuUses are the GPUs of a report with their settings by the pool, and the grants on them. It also returns those that
// are left to others.
func gpuUses(pool config.Pool, s gpunode.Status) []change.Use {
	users := map[sharing.GPUID][]string{}
	for _, c := range s.Grants {
		for _, f := range c.Shares {
			if id := gpureport.Ref(f.GPU).UUID; !slices.Contains(users[id], holder(c)) {
				users[id] = append(users[id], holder(c))
			}
		}
	}
	has := map[string]map[string]string{}
	var excluded []gpunode.Excluded
	if s.Config != nil {
		for _, w := range s.Config.Pending {
			has[w.GPU] = w.Current
		}
		excluded = s.Config.Excluded
	}
	var out []change.Use
	for _, g := range s.GPUs {
		if gpureport.Ref(g.UUID).IsInstance() {
			continue // it is as its GPU is
		}
		gpu := sharing.GPU{UUID: sharing.GPUID(g.UUID), Index: g.Index, Model: g.Model, MIG: g.MIG, MIGCapable: g.MIG ||
			g.MIGState != nil, Hardware: sharing.Hardware{Product: pciID(g.Product), Board: pciID(g.Board)}}
		now := pool.Of(gpu)
		out = append(out, change.Use{GPU: gpu, Now: &now, Has: has[g.UUID], Users: users[gpu.UUID]})
	}
	for _, e := range excluded {
		gpu := sharing.GPU{UUID: sharing.GPUID(e.GPU), Index: e.Index, Model: e.Model}
		now := pool.Of(gpu)
		now.Excluded = true
		out = append(out, change.Use{GPU: gpu, Now: &now})
	}
	return out
}

// pciID reads a product as a report has it; 0 where that has none.
func pciID(s string) uint32 {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// byMIG are the steps of a plan, with what the pools want of the GPUs' MIG instances.
func byMIG(before, after config.Pool, s gpunode.Status, uses []change.Use, plan change.Plan) (now,
	waits []change.Step) {
	able := map[sharing.GPUID]bool{}
	for _, g := range s.GPUs {
		able[sharing.GPUID(g.UUID)] = g.MIG || g.MIGState != nil
	}
	now, waits = plan.Now, plan.Pending
	for _, u := range uses {
		was, is := manager.Wanted(before, u.GPU), manager.Wanted(after, u.GPU)
		if !able[u.GPU.UUID] || was.Leave && is.Leave || was.String() == is.String() {
			continue
		}
		to := &now
		if len(u.Users) > 0 {
			to = &waits
		}
		i := slices.IndexFunc(*to, func(s change.Step) bool { return s.GPU == u.GPU.UUID })
		if i < 0 {
			i = len(*to)
			*to = append(*to, change.Step{GPU: u.GPU.UUID, Index: u.GPU.Index, For: u.Users})
		}
		(*to)[i].What = append((*to)[i].What, "mig "+was.String()+" -> "+is.String())
	}
	for _, list := range [][]change.Step{now, waits} {
		slices.SortStableFunc(list, func(a, b change.Step) int { return cmp.Compare(a.Index, b.Index) })
	}
	return now, waits
}

func steps(list []change.Step) []Step {
	var out []Step
	for _, s := range list {
		out = append(out, Step{s.Index, string(s.GPU), s.What, s.For})
	}
	return out
}
