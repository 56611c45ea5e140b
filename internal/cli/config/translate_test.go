// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestTranslateCommand(t *testing.T) {
	const pod = "kind: Pod\nmetadata: {name: a, namespace: team}\nspec: {containers: [{name: c, resources: {limits: " +
		"{LIMIT}}}]}\n"
	for name, tt := range map[string]struct {
		limit, want, errs string
		args              []string
		code              int
	}{
		"a quantity": {"nvidia.com/gpumem: 4k", `kerf.dev/gpu-memory-gib: "4"`, "1 pods found, 1 translated", nil,
			command.ExitOK},
		"a replica": {"nvidia.com/gpu: 1", `kerf.dev/gpu-percent: "25"`, "one of 4 replicas",
			[]string{"--replicas", "4", "--gpu-is-replica"}, command.ExitOK},
		"elsewhere": {"nvidia.com/gpu: 1", "nvidia.com/gpu: 1", "0 pods found", []string{"-n", "other"},
			command.ExitOK},
		"no size": {"nvidia.com/gpu.shared: 1", "", "Pod team/a: container c: nvidia.com/gpu.shared", nil,
			command.ExitFailure},
		"half a GPU": {"nvidia.com/gpu: 500m", "", "is not a number of GPUs", nil, command.ExitFailure},
		"no number of": {"nvidia.com/gpu: 1", "", "--gpu-is-replica needs to know", []string{"--gpu-is-replica"},
			command.ExitUsage},
		"too many": {"nvidia.com/gpu: 1", "", `--replicas "101"`, []string{"--replicas", "101"}, command.ExitUsage},
	} {
		p := clitest.New(nil)
		p.App.In = strings.NewReader(strings.Replace(pod, "LIMIT", tt.limit, 1))
		code, _ := p.App.Execute(append([]string{"translate", "-"}, tt.args...), Commands)
		if out := p.Out.String(); code != tt.code || !strings.Contains(out, tt.want) ||
			!strings.Contains(p.ErrOut.String(), tt.errs) || code != command.ExitOK && out != "" {
			t.Errorf("%s: status %d: %s%s", name, code, out, p.ErrOut.String())
		}
	}
}
