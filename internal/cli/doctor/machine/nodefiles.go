// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/nodejob"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing/doctor/nodefiles"
)

// NodeFiles is the command that the Job of kubectl kerf doctor --node runs on the node.
func NodeFiles(a *command.App) *cobra.Command {
	var root string
	c := &cobra.Command{
		Use:    nodejob.Command + " PATH...",
		Short:  "Print what a node has at these paths, as JSON",
		Long:   "Print what a node has at these paths, as JSON. The Job of kubectl kerf doctor runs\nit.",
		Hidden: true,
		RunE: func(c *cobra.Command, paths []string) error {
			text, err := present.JSON(nodefiles.Examine(c.Context(), root, paths), false)
			if err != nil {
				return command.Fail(fmt.Errorf("write result: %w", err))
			}
			_, err = a.Out.Write(text)
			return command.Fail(err)
		},
	}
	c.Flags().StringVar(&root, "root", "/", "where the root folder of the node is mounted")
	return c
}
