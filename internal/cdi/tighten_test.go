// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// TestLimitHookIsDropped: the hook that sets GPU memory limits from the container's environment is in no derived
// spec, wherever its name is among the arguments. Every other hook stays.
func TestLimitHookIsDropped(t *testing.T) {
	tests := map[string]struct {
		path string
		args []string
		kept bool
	}{
		"nvidia-cdi-hook": {"/usr/bin/nvidia-cdi-hook", []string{"nvidia-cdi-hook", "apply-cuda-memory-limits",
			"--gpu-id", "GPU-1"}, false},
		"nvidia-ctk hook": {"/usr/bin/nvidia-ctk", []string{"nvidia-ctk", "hook", "apply-cuda-memory-limits",
			"--gpu-id", "GPU-1"}, false},
		"the operator's wrapper": {"/usr/local/nvidia/toolkit/nvidia-cdi-hook.real",
			[]string{"nvidia-cdi-hook", "apply-cuda-memory-limits"}, false},
		"global options": {"/usr/bin/nvidia-ctk", []string{"nvidia-ctk", "--config", "/etc/c.toml", "--quiet",
			"hook", "apply-cuda-memory-limits"}, false},
		"no program name": {"/usr/bin/nvidia-cdi-hook", []string{"apply-cuda-memory-limits"}, false},
		"another hook": {"/usr/bin/nvidia-cdi-hook", []string{"nvidia-cdi-hook", "update-ldcache", "--folder",
			"/usr/lib"}, true},
		"its name in a value": {"/usr/bin/nvidia-cdi-hook", []string{"nvidia-cdi-hook", "create-symlinks", "--link",
			"a::/apply-cuda-memory-limits"}, true},
		"no arguments": {"/usr/bin/some-hook", nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out := tighten(specs.ContainerEdits{Hooks: []*specs.Hook{
				{HookName: "createContainer", Path: "/first", Args: []string{"first"}},
				{HookName: "createRuntime", Path: tc.path, Args: tc.args},
				{HookName: "createContainer", Path: "/last", Args: []string{"last"}},
			}})
			want := 2
			if tc.kept {
				want = 3
			}
			if len(out.Hooks) != want || out.Hooks[0].Path != "/first" || out.Hooks[want-1].Path != "/last" {
				t.Fatalf("%d hooks, want %d", len(out.Hooks), want)
			}
		})
	}
}
