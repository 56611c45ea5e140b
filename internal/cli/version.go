// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

func versionCommand(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print kerf's version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.Out, "kerf %s %s/%s %s\n", version(), runtime.GOOS, runtime.GOARCH, runtime.Version())
			return command.Fail(err)
		},
	}
}

// version is the module's version as the build recorded it, which names the commit of a build between
// releases.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
