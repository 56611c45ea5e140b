// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
)

// completionDeadline bounds how long a shell waits for names from the agent or the API server.
const completionDeadline = 2 * time.Second

// Completer offers words to a shell.
type Completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// CompleteWith offers what f says for a flag.
func CompleteWith(c *cobra.Command, flag string, f Completer) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) //nolint:forbidigo // a flag that was defined a line above
	}
}

// Complete offers values for a flag to the shell.
func Complete(c *cobra.Command, flag string, values ...string) {
	CompleteWith(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// KubectlCompletion is what kubectl runs for the words after "kubectl kerf", where it is found as
// kubectl_complete-kerf.
const KubectlCompletion = "#!/bin/sh\n# Put this into a folder of PATH as kubectl_complete-kerf.\nexec kubectl kerf " +
	"__complete \"$@\"\n"

// completionCommand adds kubectl to the shells of cobra's own command.
func (a *App) completionCommand(root *cobra.Command) {
	root.SetOut(a.Out) // cobra keeps the output that is there now
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.AddCommand(&cobra.Command{
			Use:   "kubectl",
			Short: "Generate the completion script for kubectl's plugins",
			Long: "Generate the script by which kubectl completes \"kubectl kerf\". Kubectl looks for it in PATH by " +
				"its name:\n\n" +
				"  kerf completion kubectl > /usr/local/bin/kubectl_complete-kerf && chmod +x " +
				"/usr/local/bin/kubectl_complete-kerf",
			Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := a.Out.Write([]byte(KubectlCompletion))
				return Fail(err)
			},
		})
	}
}

// completeContexts offers the contexts of the kubeconfig.
func (a *App) completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	o := a.Reach()
	config, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.File, Precedence: o.Files}).Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteGPUs offers the UUIDs of the GPUs that are there, of the cluster or of this machine.
func (a *App) CompleteGPUs(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, g := range a.knownGPUs(c) {
		out = append(out, cobra.CompletionWithDesc(g.uuid, g.what))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompleteGPUName offers the names of GPUs of the cluster, NODE/INDEX, for the first word of a command.
func (a *App) CompleteGPUName(c *cobra.Command, args []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var out []cobra.Completion
	if len(args) == 0 {
		for _, g := range a.knownGPUs(c) {
			if g.name != "" {
				out = append(out, cobra.CompletionWithDesc(g.name, g.what))
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompleteGrants offers the grants of this machine for the first word of a command.
func (a *App) CompleteGrants(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(c.Context(), completionDeadline)
	defer cancel()
	var out []cobra.Completion
	if s, ok := a.machine(ctx); ok {
		for _, g := range s.Grants {
			out = append(out, cobra.CompletionWithDesc(g.Label(), strings.Join(g.GPUs, ",")))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// knownGPU is a GPU for shell completion. name is empty on one machine.
type knownGPU struct{ uuid, name, what string }

// knownGPUs returns none if no source answers in time. The shell then completes nothing.
func (a *App) knownGPUs(c *cobra.Command) []knownGPU {
	ctx, cancel := context.WithTimeout(c.Context(), completionDeadline)
	defer cancel()
	var out []knownGPU
	if !a.Remote(c) {
		if s, ok := a.machine(ctx); ok {
			for _, g := range s.GPUs {
				out = append(out, knownGPU{g.UUID, "", g.Model})
			}
		}
		return out
	}
	_ = a.WithCluster(ctx, func(ctx context.Context, api *access.Client) error {
		p, err := Reported(ctx, api, time.Now())
		for _, n := range p.Nodes {
			for _, g := range n.GPUs {
				out = append(out, knownGPU{g.UUID, present.GPUName(n.Name, g), g.Model})
			}
		}
		return err
	})
	return out
}

// machine is what the agent of this machine tells.
func (a *App) machine(ctx context.Context) (present.Status, bool) {
	client, err := nodeclient.New(a.Dir)
	if err != nil {
		return present.Status{}, false
	}
	defer func() { _ = client.Close() }()
	p, err := client.Node(ctx)
	if err != nil {
		return present.Status{}, false
	}
	return present.FromNode(p), true
}
