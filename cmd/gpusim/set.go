// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/gpusim/control"
)

func setCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "set --dir DIR gpu=N|all KEY=VALUE...",
		Short: "Break GPUs, mend them, and set what they report",
		Long: lines("Break GPUs, mend them, and set what they report. All is done, or nothing.", "",
			"  gpu=N|N,M|all     the GPUs, by index",
			"  lost=true|false   fall off the bus, without an event; come back as after a reset",
			"  xid=N             raise an XID; 79 also loses the GPU; 46, 48, 62, 64, 74, 95, 119, 120 and 140 ask for a reset",
			"  reset=true        reset the GPU, which nobody may hold",
			"  util=N|auto       the percent of utilisation reported; auto: as computed from what runs",
			"  latency=T         by how much answers are late, such as 5ms; 1h is a hang, 0s ends it"),
		Example: lines("  gpusim set --dir /tmp/sim gpu=0 lost=true", "  gpusim set --dir /tmp/sim gpu=all util=80 latency=5ms"),
		RunE: func(cmd *cobra.Command, words []string) error {
			s, err := control.ParseSettings(words)
			if err != nil {
				return err
			}
			return ask(cmd.Context(), dir, control.Request{Command: control.CmdSet, Set: &s}, nil)
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}
