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
		Short: "Show the MIG instances of each GPU",
		Long: `Show the MIG instances of each GPU on its memory slices, and the grant of each.
The output also shows the instances that the agent creates, for which request,
and what prevents the layout of the pool. A letter is an instance that Kerf
created, # an unmanaged instance, and . a free slice. For a cluster, the command
shows all nodes. -o wide adds the UUIDs of the instances.`,
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
		Short: "Show the steps from the current MIG layout to the pool's",
		Long: `Show, for each GPU, the steps from its current MIG mode and instances to those
of the agent's SharingConfig, and what prevents them. With FILE, the command
uses that config; - is standard input. It draws the memory slices of each GPU
before and after the steps. An instance that stays has the same letter in both.
The command changes nothing.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := command.CheckOutput(output); err != nil {
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
	command.OutputFlag(c, &output)
	return c
}

func migApplyCommand(a *command.App) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "apply",
		Short: "Apply the MIG layout of the agent's SharingConfig now",
		Long: `Apply the MIG layout of the agent's SharingConfig now, as far as possible. The
agent does the same later without this command. The output shows what was done,
the layout of the GPUs, and what prevents the rest. The agent changes no
instance that is in use or that Kerf did not create. Only root can run it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := command.CheckOutput(output); err != nil {
				return err
			}
			return command.Fail(planMIG(c.Context(), a, "", true, output))
		},
	}
	command.OutputFlag(c, &output)
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
	return a.Answer(output, present.MIGPlanned(plans, apply),
		func() string { return present.MIGPlans(present.FromNode(p), plans, apply) })
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
				n.GPUs = slices.DeleteFunc(n.GPUs,
					func(g gpunode.GPU) bool { return !hasGrant(g.UUID, n.Grants, keep) })
			}
			if l.Script() {
				n.Grants = nil
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
func hasGrant(gpu string, grants []gpunode.Grant, keep func(namespace, pod string) bool) bool {
	return slices.ContainsFunc(grants, func(c gpunode.Grant) bool {
		return keep(c.Namespace, c.Pod) &&
			slices.ContainsFunc(c.Shares, func(f gpunode.Share) bool { return f.GPU == gpu })
	})
}
