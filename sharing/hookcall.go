// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "path"

// How the CDI devices of guard and asks call kerf-hook, in a container's OCI spec.
const (
	// HookProgram is the program's name, in its path and as its first argument.
	HookProgram = "kerf-hook"
	// HookArm is what it is to do, the second argument.
	HookArm = "arm"
	// HookAsk stands before the amount of an ask, as Ask's String writes it.
	HookAsk = "--ask"
)

// DeviceOfHook is the qualified name of the guard or ask whose hook this is; ok is false for what is no hook of Kerf's. A
// container's hooks are the container runtime's, for the CDI devices that kubelet passed: tenants have none of their own.
func DeviceOfHook(program string, args []string) (name string, ok bool) {
	if path.Base(program) != HookProgram || len(args) < 2 || args[0] != HookProgram || args[1] != HookArm {
		return "", false
	}
	for i := 2; i+1 < len(args); i++ {
		if args[i] == HookAsk {
			return CDIAsk + "=" + args[i+1], true
		}
	}
	return GuardDevice, true
}
