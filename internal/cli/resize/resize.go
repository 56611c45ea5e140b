// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package resize is kerf resize: it changes the memory of a grant of a machine, or of a pod of a cluster.
package resize

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	var amount string
	var timeout time.Duration
	c := &cobra.Command{
		ValidArgsFunction: a.CompleteGrants,

		Use:   "resize GRANT --memory AMOUNT",
		Short: "Change the memory of a grant while it runs",
		Long: `Change the memory of a grant while programs use it.

GRANT is a name, namespace/pod/container, or an ID, as kerf status shows it. The
compute percent does not change. A grant grows into the free memory of its GPUs.
Only root can let a grant grow; users can shrink their own grants. A grant
cannot shrink below the memory that its processes use. In that case nothing
changes, and the message states the amount.

MPS sets the limit of a program when it connects. A grant with backend mps grows
for programs that start later. The command names the programs that keep the old
limit. Such a grant shrinks only while it has no program.

For a cluster, the command writes spec.grantMemory of the node's GPUNode. This
needs the right to patch gpunodes. The amount is whole GiB. The maximum is
maxMemoryPerPod of the pod's profile, else maxBurstMemory, else memory. If the
agent rejects the amount, an event of the pod states the reason.`,
		Example: "  kerf resize train --memory 12GiB\n  kerf resize team/chat-0/main --memory 20GiB",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if amount == "" {
				return command.Misused(sharing.Invalid("--memory", "", "write an amount such as 12GiB", "is missing"))
			}
			memory, err := sharing.ParseSize("--memory", amount)
			if err != nil {
				return command.Misused(err)
			}
			if a.Remote(c) {
				return inCluster(c.Context(), a, args[0], memory, timeout)
			}
			if c.Flags().Changed("timeout") {
				return command.Misused(sharing.Invalid("--timeout", timeout.String(), "leave it out",
					"has no effect on one machine"))
			}
			return onMachine(c.Context(), a, args[0], memory)
		},
	}
	c.Flags().StringVar(&amount, "memory", "", "memory over all GPUs of the grant, such as 12GiB (required)")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "for a cluster: longest time to wait for the agent")
	return []*cobra.Command{c}
}

func onMachine(ctx context.Context, a *command.App, name string, memory sharing.Bytes) error {
	client, err := nodeclient.New(a.Dir)
	if err != nil {
		return command.Fail(err)
	}
	defer func() { _ = client.Close() }()
	p, err := client.Node(ctx)
	if err != nil {
		return command.Fail(err)
	}
	before, err := grantNamed(p, name)
	if err != nil {
		return command.Fail(err)
	}
	after, err := client.Resize(ctx, before.ID, uint64(memory))
	if err != nil {
		return command.Fail(err)
	}
	_, err = fmt.Fprintf(a.Out, "%s: %s, was %s (level %s)\n", before.Label(), sharing.Bytes(after.GetMemoryBytes()),
		sharing.Bytes(before.MemoryBytes), after.GetLevel())
	if why := strings.TrimPrefix(after.GetLevelReason(), before.LevelReason+"; "); err == nil && why != "" &&
		why != before.LevelReason {
		_, err = fmt.Fprintf(a.Out, "note: %s\n", why)
	}
	return command.Fail(err)
}

// grantNamed finds the grant of that id, else the one of that name or namespace/pod/container.
func grantNamed(p *nodeapi.GetNodeResponse, name string) (present.Grant, error) {
	var named []present.Grant
	var all []string
	for _, m := range p.GetGrants() {
		g := present.FromGrant(m)
		if g.ID == name {
			return g, nil
		}
		if g.Label() == name {
			named = append(named, g)
		}
		all = append(all, g.Label())
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) > 1:
		return present.Grant{}, fmt.Errorf("%d grants are called %q: name one by its id (kerf status -o json): %w",
			len(named), name, sharing.ErrConflict)
	case len(all) == 0:
		return present.Grant{}, fmt.Errorf("grant %q: %w: this node has no grants", name, sharing.ErrNotFound)
	}
	return present.Grant{}, fmt.Errorf("grant %q: %w: there are %s", name, sharing.ErrNotFound, strings.Join(all, ", "))
}
