// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"maps"
	"slices"
	"strings"
)

// Calls returns the operations on GPUs by the names that people use for them.
func Calls() map[string]Op {
	return map[string]Op{
		"info": OpGPUInfo, "memory": OpMemory, "utilization": OpUtilization, "processes": OpProcesses,
		"process-utilization": OpProcessUtil, "instance-utilization": OpInstanceUtil, "telemetry": OpTelemetry,
		"compute-mode": OpComputeMode, "power-limit": OpPowerLimit, "topology": OpTopology, "nvlink": OpNVLink,
		"mig-mode": OpMIGMode, "mig-set": OpMIGSet, "mig-profile": OpMIGProfile, "mig-instances": OpMIGInstances,
		"gi-create": OpGICreate, "gi-destroy": OpGIDestroy, "ci-create": OpCICreate, "ci-destroy": OpCIDestroy,
		"set-limit": OpSetLimit, "get-limit": OpGetLimit, "recovery": OpRecovery,
		"ctx-create": OpCtxCreate, "ctx-destroy": OpCtxDestroy, "alloc": OpAlloc, "free": OpFree,
		"launch": OpLaunch, "reside": OpReside, "import": OpImport, "mps-serve": OpMPSServe, "mps-join": OpMPSJoin,
		"mps-state":  OpMPSState,
		"checkpoint": OpCheckpoint, "export": OpExport, "clock": OpClock, "copy": OpCopy,
	}
}

// CallNames returns the names of Calls, sorted.
func CallNames() []string { return slices.Sorted(maps.Keys(Calls())) }

// Failures returns the statuses other than OK by their texts with dashes for blanks: "out-of-memory".
func Failures() map[string]Status {
	all := map[string]Status{}
	for s := Invalid; s <= InvalidLimit; s++ {
		all[strings.ReplaceAll(s.Error(), " ", "-")] = s
	}
	all[strings.ReplaceAll(CannotOpen.Error(), " ", "-")] = CannotOpen
	return all
}
