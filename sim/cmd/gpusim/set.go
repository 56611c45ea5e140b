// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func setCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "set --dir DIR gpu=N|all KEY=VALUE...",
		Short: "Inject faults into GPUs, recover them, and set what they report",
		Long: lines("Inject faults into GPUs, recover them, and set what they report. All is done, or nothing.", "",
			"  gpu=N|N,M|all     the GPUs, by index",
			"  lost=true|false   fall off the bus, without an event; come back as after a reset",
			"  xid=N             raise an XID; 79 also loses the GPU; 46, 48, 62, 64, 74, 95, 119, 120 and 140 ask "+
				"for a reset",
			"  reset=true        reset the GPU, which no process may use; it destroys MIG instances, and applies a "+
				"pending MIG mode",
			"  reboot=true       as after a restart of the node: nothing is held, MIG instances and limits are gone,",
			"                    and Hopper and later are out of MIG mode",
			"  passthrough=B     true: the node is a virtual machine, so that MIG mode of a GPU before Hopper waits "+
				"for reset=true",
			"  util=N|auto       the percent of utilisation reported; auto: as computed from what runs",
			"  latency=T         by how much answers are late, such as 5ms; 1h is a hang, 0s ends it",
			"  ramp=T            the time within which latency rises to its value, as of a GPU that fails",
			"  latency.CALL=T    the same for one call alone, such as latency.memory=200ms",
			"  error.CALL=S      answer a call with an error, such as error.alloc=out-of-memory; none ends it",
			"  ecc.corrected=N, ecc.uncorrected=N",
			"                    the counts of memory errors",
			"  remap.pending=B, remap.failed=B",
			"                    a memory row waits to be remapped, or cannot be; true or false",
			"  slowed=R          why the hardware slows itself down: none, heat or power",
			"  links.down=N      how many NVLinks are down",
			"  peak=now          restart the count of the most memory used (peak_bytes of gpusim gpus)",
			"  cost.context=T    how long a new context takes (default of these five: as measured, of an H200 alone)",
			"  cost.list=T       for how much of that time lists of processes wait",
			"  cost.exit=T       for how long an ended process keeps its memory and its place in the lists",
			"  cost.stream=SIZE  the memory of each stream, for programs that start from now on",
			"  cost.unlisted=SIZE",
			"                    memory of each new context that is in use and in no list of processes",
			"  list.PID=L        show a process in NVML's list compute, graphics or mps",
			"  fault.PID=N       raise XID 13, 31 or 43: CUDA fails in that process until it ends", "",
			"CALL is one of "+strings.Join(wire.CallNames(), ", ")+"."),
		Example: lines("  gpusim set --dir /tmp/sim gpu=0 lost=true",
			"  gpusim set --dir /tmp/sim gpu=all util=80 latency=5ms"),
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
