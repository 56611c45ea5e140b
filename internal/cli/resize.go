// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

func resizeCommand(a *command.App) *cobra.Command {
	var amount string
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
limit. Such a grant shrinks only while it has no program.`,
		Example: "  kerf resize train --memory 12GiB\n  kerf resize team/chat-0/main --memory 20GiB",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return resize(c.Context(), a, args[0], amount) },
	}
	c.Flags().StringVar(&amount, "memory", "", "memory over all GPUs of the grant, such as 12GiB (required)")
	return c
}

func resize(ctx context.Context, a *command.App, name, amount string) error {
	if amount == "" {
		return command.Misused(sharing.Invalid("--memory", "", "write an amount such as 12GiB", "is missing"))
	}
	memory, err := sharing.ParseSize("--memory", amount)
	if err != nil {
		return command.Misused(err)
	}
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
