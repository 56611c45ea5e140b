// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"path"
	"strings"
)

// How the CDI devices of guard and asks call kerf-hook, in a container's OCI spec.
const (
	// HookProgram is the program's name, in its path and as its first argument.
	HookProgram = "kerf-hook"
	// HookActivate is the command, its second argument.
	HookActivate = "activate"
	// HookRequest is the flag of an admitted amount, as ResourceRequest's String writes it.
	HookRequest = "--request"

	// formerActivate and formerRequest are in OCI specs and CDI specs that earlier versions wrote.
	formerActivate, formerRequest = "arm", "--ask"
)

// isHookCommand reports whether an argument is the command of kerf-hook, in its spelling of this version or an earlier
// one.
func isHookCommand(arg string) bool { return arg == HookActivate || arg == formerActivate }

// RequestOfHook is the amount in the arguments of kerf-hook, in either spelling; empty if there is none.
func RequestOfHook(args []string) string {
	for i, a := range args {
		flag, value, joined := strings.Cut(a, "=")
		switch {
		case flag != HookRequest && flag != formerRequest:
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// DeviceOfHook is the qualified name of the guard or ask whose hook this is; ok is false for what is no hook of Kerf's.
// A container's hooks are the container runtime's, for the CDI devices that kubelet passed: tenants have none of their
// own.
func DeviceOfHook(program string, args []string) (name string, ok bool) {
	if path.Base(program) != HookProgram || len(args) < 2 || args[0] != HookProgram || !isHookCommand(args[1]) {
		return "", false
	}
	if amount := RequestOfHook(args[2:]); amount != "" {
		if claim, is := strings.CutPrefix(amount, ClaimResource+":"); is {
			return CDIClaim + "=" + claim, true
		}
		return CDIRequest + "=" + amount, true
	}
	return HookDevice, true
}
