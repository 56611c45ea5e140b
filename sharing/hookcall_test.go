// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "testing"

func TestDeviceOfHook(t *testing.T) {
	const program = "/opt/kerf/v1/kerf-hook"
	for name, tc := range map[string]struct {
		program string
		args    []string
		want    string
	}{
		"guard": {program, []string{"kerf-hook", "activate", "--socket", "/s"}, HookDevice},
		"ask": {program, []string{"kerf-hook", "activate", "--socket", "/s", "--request", "gpu-memory-gib:3"},
			CDIRequest + "=gpu-memory-gib:3"},
		"guard of an earlier version": {program, []string{"kerf-hook", "arm", "--socket", "/s"}, HookDevice},
		"ask of an earlier version": {program, []string{"kerf-hook", "arm", "--socket", "/s", "--ask",
			"gpu-memory-gib:3"}, "kerf.dev/ask=gpu-memory-gib:3"},
		"an ask of nothing":   {program, []string{"kerf-hook", "activate", "--request"}, HookDevice},
		"another command":     {program, []string{"kerf-hook", "look", "--request", "gpu:1"}, ""},
		"another program":     {"/usr/bin/nvidia-cdi-hook", []string{"nvidia-cdi-hook", "activate"}, ""},
		"another's arguments": {program, []string{"hook", "activate"}, ""},
		"no arguments":        {program, nil, ""},
	} {
		if got, ok := DeviceOfHook(tc.program, tc.args); got != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q, %t, want %q", name, got, ok, tc.want)
		}
	}
}
