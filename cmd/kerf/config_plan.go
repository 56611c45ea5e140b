// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// exitDiffers is the exit status for documents that differ.
const exitDiffers = 3

// configPlan is what a document would change in a cluster.
type configPlan struct {
	SHA256      string              `json:"sha256"`
	InForce     string              `json:"in_force"`
	Differences []change.Difference `json:"differences"`
	Nodes       []nodePlan          `json:"nodes"`
	Left        []string            `json:"left"`
}

// nodePlan is what it would change on one node.
type nodePlan struct {
	Node   string     `json:"node"`
	Before string     `json:"pool_before"`
	After  string     `json:"pool_after"`
	Now    []stepPlan `json:"now"`
	Waits  []stepPlan `json:"waits"`
	// Refused says why the node's agent would not take the document.
	Refused string `json:"refused,omitempty"`
}

type stepPlan struct {
	Index int      `json:"index"`
	GPU   string   `json:"gpu"`
	What  []string `json:"what"`
	For   []string `json:"for,omitempty"`
}

func (a *app) configDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff FILE...",
		Short: "Show what a SharingConfig says differently from the one of the cluster",
		Long: "diff compares a SharingConfig with the one in the cluster's ConfigMap kerf-system/kerf-config, field by field; how they\n" +
			"are written makes no difference. FILE is as for validate.\n\nExit status: 0 when nothing differs, 3 when something does, 1 when it cannot be told.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), surveyTimeout)
			defer cancel()
			p, _, err := a.compare(ctx, args)
			if err != nil {
				return fail(err)
			}
			for _, d := range p.Differences {
				if _, err := fmt.Fprintln(a.out, d); err != nil {
					return fail(err)
				}
			}
			if len(p.Differences) > 0 {
				return &failure{exitDiffers, fmt.Errorf("the documents differ in %d fields", len(p.Differences))}
			}
			return nil
		},
	}
}

func (a *app) configPlanCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "plan FILE...",
		Short: "Show what a SharingConfig would change in the cluster, now and later",
		Long: "plan compares a SharingConfig with the one of the cluster, and says for each node which pool it would be of, which GPUs\n" +
			"would get other settings at once because nobody uses them, and which would wait for whom. It changes nothing. What\n" +
			"new claims get is by the new document at once; grants that run keep what they have. GPUs that are left to others\n" +
			"(exclude) are not seen from here. FILE is as for validate.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "" && output != "json" && output != "yaml" {
				return misused(sharing.Invalid("--output", output, "write json or yaml, or leave it out", "is not a form of output"))
			}
			ctx, cancel := context.WithTimeout(c.Context(), surveyTimeout)
			defer cancel()
			p, x, err := a.compare(ctx, args)
			if err == nil {
				err = x.nodes(&p)
			}
			if err != nil {
				return fail(err)
			}
			if output != "" {
				text, err := encoded(output, p)
				if err == nil {
					_, err = a.out.Write(text)
				}
				return fail(err)
			}
			return fail(p.write(a.out))
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	complete(c, "output", "json", "yaml")
	return c
}

// comparison is two documents and the cluster that has the first.
type comparison struct {
	before, after config.Config
	cluster       survey.Cluster
}

// compare reads a document and the cluster.
func (a *app) compare(ctx context.Context, names []string) (configPlan, comparison, error) {
	p := configPlan{Differences: []change.Difference{}, Nodes: []nodePlan{}, Left: []string{}}
	d, err := a.readDocument(names)
	if err != nil {
		return p, comparison{}, err
	}
	x := comparison{before: config.Default(), after: d.config}
	api, err := a.cluster()
	if err != nil {
		return p, x, err
	}
	defer api.Close()
	found, err := survey.Take(ctx, api)
	if err != nil {
		return p, x, fmt.Errorf("read the cluster: %w", err)
	}
	data, err := survey.Config(ctx, api)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return p, x, fmt.Errorf("read the cluster: %w", err)
	}
	x.cluster, p.SHA256 = found, config.Hash(d.files)
	if files := config.FilesOf(data); len(files) > 0 {
		p.InForce = config.Hash(files)
		if x.before, err = config.DecodeFiles(files...); err != nil {
			return p, x, fmt.Errorf("the document of the cluster has mistakes, so that what is in force is not known from here: %w", err)
		}
	} else {
		p.Left = append(p.Left, "there is no configmap kerf-system/kerf-config; what agents have of their own is compared")
	}
	differences, err := change.Documents(x.before, x.after)
	p.Differences = append(p.Differences, differences...)
	return p, x, err //nolint:wrapcheck // it says what was done
}

// nodes plans each node that has an agent.
func (x comparison) nodes(p *configPlan) error {
	for _, n := range x.cluster.Nodes {
		raw, ok := x.cluster.Reports[n.Name]
		if !ok {
			continue
		}
		var s gpunode.Status
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("read the status of gpunode %s: %w", n.Name, err)
		}
		p.Nodes = append(p.Nodes, x.node(n, s))
	}
	slices.SortFunc(p.Nodes, func(a, b nodePlan) int { return strings.Compare(a.Node, b.Node) })
	return nil
}

func (x comparison) node(n survey.Node, s gpunode.Status) nodePlan {
	out := nodePlan{Node: n.Name, Before: s.Pool, Now: []stepPlan{}, Waits: []stepPlan{}}
	before, _ := x.before.PoolFor(n.Labels)
	after, err := x.after.PoolFor(n.Labels)
	if before.Name != s.Pool {
		// The agent was given labels of its own: it stays in the pool of that name.
		named := func(c config.Config) (config.Pool, bool) {
			pools := c.Pools()
			i := slices.IndexFunc(pools, func(p config.Pool) bool { return p.Name == s.Pool })
			if i < 0 {
				return config.Pool{}, false
			}
			return pools[i], true
		}
		var was, is bool
		before, was = named(x.before)
		if after, is = named(x.after); was && is {
			err = nil
		} else {
			err = fmt.Errorf("its agent says pool %q, which the documents do not both have: %w", s.Pool, sharing.ErrNotFound)
		}
	}
	if err != nil {
		out.Refused = err.Error()
		return out
	}
	out.After = after.Name
	plan := change.Settle(after, gpuUses(before, s))
	out.Now, out.Waits = append(out.Now, steps(plan.Now)...), append(out.Waits, steps(plan.Waits)...)
	return out
}

// gpuUses are the GPUs of a report with what holds for them by the pool, and who is on them.
func gpuUses(pool config.Pool, s gpunode.Status) []change.Use {
	users := map[sharing.GPUID][]string{}
	for _, c := range s.Claims {
		name := "grant " + c.ID
		if c.PodUID != "" {
			name = c.Namespace + "/" + c.Pod
		}
		for _, f := range c.Fragments {
			if id := sharing.GPUID(f.GPU).Device(); !slices.Contains(users[id], name) {
				users[id] = append(users[id], name)
			}
		}
	}
	var out []change.Use
	for _, g := range s.GPUs {
		if sharing.GPUID(g.UUID).IsPart() {
			continue // it is as its GPU is
		}
		gpu := sharing.GPU{UUID: sharing.GPUID(g.UUID), Index: g.Index, Model: g.Model, MIG: g.MIG, MIGCapable: g.MIG || g.MIGState != nil}
		now := pool.Of(gpu)
		out = append(out, change.Use{GPU: gpu, Now: &now, Users: users[gpu.UUID]})
	}
	return out
}

func steps(list []change.Step) []stepPlan {
	var out []stepPlan
	for _, s := range list {
		out = append(out, stepPlan{s.Index, string(s.GPU), s.What, s.For})
	}
	return out
}

func (p configPlan) write(out io.Writer) error {
	var b strings.Builder
	if len(p.Differences) == 0 {
		b.WriteString("The document says what the cluster's says.\n")
	}
	for _, d := range p.Differences {
		fmt.Fprintf(&b, "%s\n", d)
	}
	for _, n := range p.Nodes {
		pool := n.After
		if n.Before != n.After {
			pool = n.Before + " -> " + n.After
		}
		switch {
		case n.Refused != "":
			fmt.Fprintf(&b, "\nnode %s: would not take it: %s\n", n.Node, n.Refused)
			continue
		case len(n.Now) == 0 && len(n.Waits) == 0:
			fmt.Fprintf(&b, "\nnode %s (pool %s): no GPU changes\n", n.Node, pool)
			continue
		}
		fmt.Fprintf(&b, "\nnode %s (pool %s):\n", n.Node, pool)
		for _, s := range n.Now {
			fmt.Fprintf(&b, "  now    GPU %d: %s\n", s.Index, strings.Join(s.What, ", "))
		}
		for _, s := range n.Waits {
			fmt.Fprintf(&b, "  waits  GPU %d: %s; for %s\n", s.Index, strings.Join(s.What, ", "), strings.Join(s.For, ", "))
		}
	}
	for _, l := range p.Left {
		fmt.Fprintf(&b, "\nnote: %s\n", l)
	}
	_, err := io.WriteString(out, b.String())
	return err //nolint:wrapcheck // of the output
}
