// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func migStatusCommand(a *command.App) *cobra.Command {
	l := &command.Listing{}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how each GPU is cut, who has what, and what it waits for",
		Long: `Show each GPU's placement units with the instances on them, who has each, which are being cut and for whom, and what
stands in the way where a GPU is not as its pool says. A letter is an instance of Kerf's, # one that Kerf did not make, and .
a unit that is free. Of a cluster it shows the GPUs of all nodes. -o wide adds the UUIDs of the MIG devices; -o json is the part of kerf status -o json.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := l.Check(c); err != nil {
				return command.Misused(err)
			}
			if a.Remote(c) {
				return command.Fail(clusterMIG(c.Context(), a, l))
			}
			if err := l.CheckMachine(); err != nil {
				return command.Misused(err)
			}
			client, err := nodeclient.New(a.Dir)
			if err != nil {
				return command.Fail(err)
			}
			defer func() { _ = client.Close() }()
			p, err := client.Node(c.Context())
			if err != nil {
				return command.Fail(err)
			}
			text, err := instances(present.FromNode(p), a.Overrides.Context.Namespace, l)
			if err == nil {
				_, err = a.Out.Write(text)
			}
			return command.Fail(err)
		},
	}
	l.Define(c)
	return c
}

// instances renders the GPUs that have a MIG state; with a namespace, those on which its pods have grants.
func instances(s present.Status, namespace string, l *command.Listing) ([]byte, error) {
	granted := s.InNamespace(namespace).Grants
	gpus := []present.GPU{}
	for _, g := range s.GPUs {
		has := func(grant present.Grant) bool { return slices.Contains(grant.GPUs, g.UUID) }
		if g.MIGState != nil && (namespace == "" || slices.ContainsFunc(granted, has)) {
			gpus = append(gpus, g)
		}
	}
	s.GPUs = gpus
	if text, ok, err := l.Encode(gpus, func() []string { return present.Status{GPUs: gpus}.Names() }); ok {
		return text, err
	}
	return []byte(present.Slices(s, present.Options{Wide: l.Wide()})), nil
}

func migPlanCommand(a *command.App) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Say what is to be done for the GPUs to be cut as the pool wants them",
		Long: `plan says, GPU by GPU, which steps are left until MIG mode and instances are as the agent's SharingConfig wants them, or
the one in FILE (- for the standard input), and what stands in the way. It draws the GPU's slices as they are, with who has
each, and as they are after these steps: an instance that stays has one letter in both. Nothing is changed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := command.DocumentForm(output); err != nil {
				return err
			}
			document := ""
			if len(args) == 1 {
				data, err := a.ReadBounded(args[0], config.MaxSize)
				if err != nil {
					return command.Fail(err)
				}
				if _, err := config.Decode(data); err != nil {
					return command.Fail(err)
				}
				document = string(data)
			}
			return command.Fail(planMIG(c.Context(), a, document, false, output))
		},
	}
	command.DocumentFlag(c, &output)
	return c
}

func migApplyCommand(a *command.App) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "apply",
		Short: "Do now what the agent's SharingConfig wants of MIG, as far as it can be done",
		Long: `apply has the agent look at all GPUs and do at once what it would do by itself sooner or later, and says what was
done, how the GPUs are cut after it, and what stands in the way of the rest. It touches nothing that is in use, and nothing
that Kerf did not make. Root alone may.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := command.DocumentForm(output); err != nil {
				return err
			}
			return command.Fail(planMIG(c.Context(), a, "", true, output))
		},
	}
	command.DocumentFlag(c, &output)
	return c
}

func planMIG(ctx context.Context, a *command.App, document string, apply bool, output string) error {
	client, err := nodeclient.New(a.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	plans, err := client.PlanMIG(ctx, document, apply)
	if err != nil {
		return err
	}
	p, err := client.Node(ctx)
	if err != nil {
		return err
	}
	return a.Answer(output, present.MIGPlanned(plans, apply), func() string { return present.MIGPlans(present.FromNode(p), plans, apply) })
}

// clusterMIG is kerf mig status of a cluster.
func clusterMIG(ctx context.Context, a *command.App, l *command.Listing) error {
	return a.WithCluster(ctx, func(ctx context.Context, api *access.Client) error {
		p, err := command.Reported(ctx, api, time.Now())
		if err != nil {
			return err
		}
		namespace := a.Overrides.Context.Namespace
		keep, err := l.Pods(ctx, api, namespace)
		if err != nil {
			return err
		}
		for i := range p.Nodes {
			n := &p.Nodes[i]
			n.GPUs = slices.Clone(n.GPUs)
			if namespace != "" || l.Selector != "" {
				n.GPUs = slices.DeleteFunc(n.GPUs, func(g gpunode.GPU) bool { return !hasGrant(g.UUID, n.Claims, keep) })
			}
			if l.Script() {
				n.Claims = nil
			}
		}
		text, err := a.RenderCluster(l, p, present.ClusterSlices)
		if err == nil {
			_, err = a.Out.Write(text)
		}
		return err
	})
}

// hasGrant is true if a pod to keep has a grant on the GPU.
func hasGrant(gpu string, grants []gpunode.Claim, keep func(namespace, pod string) bool) bool {
	return slices.ContainsFunc(grants, func(c gpunode.Claim) bool {
		return keep(c.Namespace, c.Pod) && slices.ContainsFunc(c.Fragments, func(f gpunode.Fragment) bool { return f.GPU == gpu })
	})
}
