// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

func limitCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		ValidArgsFunction: a.CompleteGrants,

		Use:   "limit GRANT AMOUNT",
		Short: "Change the memory of a grant while it runs",
		Long: `Change the memory of a grant while programs use it. AMOUNT is the total over its
GPUs, such as 12GiB.

GRANT is a name, namespace/pod/container, or an ID, as kerf status shows it. The
compute percent does not change. A grant grows into the free memory of its GPUs.
Only root can let a grant grow; users can shrink their own grants. A grant
cannot shrink below the memory that its processes use. In that case nothing
changes, and the message states the amount.

MPS sets the limit of a program when it connects. A grant with backend mps grows
for programs that start later. The command names the programs that keep the old
limit. Such a grant shrinks only while it has no program.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return limit(c.Context(), a, args[0], args[1]) },
	}
}

func limit(ctx context.Context, a *command.App, name, amount string) error {
	memory, err := sharing.ParseSize("AMOUNT", amount)
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
	after, err := client.Limit(ctx, before.ID, uint64(memory))
	if err != nil {
		return command.Fail(err)
	}
	_, err = fmt.Fprintf(a.Out, "%s: %s, was %s (level %s)\n", before.Label(), sharing.Bytes(after.GetMemoryBytes()), sharing.Bytes(before.MemoryBytes), after.GetLevel())
	if why := strings.TrimPrefix(after.GetLevelReason(), before.LevelReason+"; "); err == nil && why != "" && why != before.LevelReason {
		_, err = fmt.Fprintf(a.Out, "note: %s\n", why)
	}
	return command.Fail(err)
}

// grantNamed finds the grant of that id, else the one of that name or namespace/pod/container.
func grantNamed(p *nodev1.GetNodeResponse, name string) (present.Grant, error) {
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
		return present.Grant{}, fmt.Errorf("%d grants are called %q: name one by its id (kerf status -o json): %w", len(named), name, sharing.ErrConflict)
	case len(all) == 0:
		return present.Grant{}, fmt.Errorf("grant %q: %w: nobody holds a grant here", name, sharing.ErrNotFound)
	}
	return present.Grant{}, fmt.Errorf("grant %q: %w: there are %s", name, sharing.ErrNotFound, strings.Join(all, ", "))
}
