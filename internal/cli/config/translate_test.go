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
	const pod = "kind: Pod\nmetadata: {name: a, namespace: team}\nspec: {schedulerName: volcano, containers: " +
		"[{name: c, resources: {limits: " +
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
		"MIG single": {"nvidia.com/gpu: 1", `kerf.dev/mig-1g.10gb: "1"`, "1 translated",
			[]string{"--mig-single", "1g.10gb"}, command.ExitOK},
		"a factor": {"nvidia.com/gpumem: 10", `kerf.dev/gpu-memory-gib: "10"`, "1 translated",
			[]string{"--memory-factor", "1024"}, command.ExitOK},
		"another scheduler": {"nvidia.com/gpu: 1", "schedulerName: kerf-scheduler", "1 translated",
			[]string{"--scheduler", "kerf-scheduler"}, command.ExitOK},
		"the scheduler stays": {"nvidia.com/gpu: 1", "schedulerName: volcano", "schedulerName volcano stays", nil,
			command.ExitOK},
		"left": {"nvshare.com/gpu: 1", "nvshare.com/gpu: 1", "Pod team/a: line 3: spec.containers.resources.limits: " +
			"nvshare.com/gpu stays", nil, command.ExitOK},
		"left, strictly": {"nvshare.com/gpu: 1", "", "found 1 GPU requests without a translation",
			[]string{"--strict"}, exitLeft},
		"none left, strictly": {"nvidia.com/gpu: 1", `kerf.dev/gpu: "1"`, "0 GPU requests not translated",
			[]string{"--strict"}, command.ExitOK},
		"no profile": {"nvidia.com/gpu: 1", "", "--mig-single", []string{"--mig-single", "big"}, command.ExitUsage},
		"profile and replica": {"nvidia.com/gpu: 1", "", "--mig-single", []string{"--mig-single", "1g.10gb",
			"--replicas", "2", "--gpu-is-replica"}, command.ExitUsage},
		"no factor": {"nvidia.com/gpu: 1", "", "--memory-factor", []string{"--memory-factor", "0"},
			command.ExitUsage},
		"by claim": {"nvidia.com/gpumem: 10240", "resourceClaimTemplateName: gpu-10gib", "1 translated",
			[]string{"--to", "dra"}, command.ExitOK},
		"percent by claim": {"kerf.dev/gpu-percent: 25", "resourceClaimTemplateName: gpu-20gib-25percent",
			"25% of a GPU with 80GiB is 20GiB of memory", []string{"--to", "dra", "--gpu-memory", "80GiB"},
			command.ExitOK},
		"percent without memory by claim": {"kerf.dev/gpu-percent: 25", "",
			"states no memory, and a claim states both; say the memory of one GPU (--gpu-memory)",
			[]string{"--to", "dra"}, command.ExitFailure},
		"no form": {"nvidia.com/gpu: 1", "", "--to", []string{"--to", "claims"}, command.ExitUsage},
		"memory without a claim": {"nvidia.com/gpu: 1", "", "add --to dra", []string{"--gpu-memory", "80GiB"},
			command.ExitUsage},
		"no memory": {"nvidia.com/gpu: 1", "", "--gpu-memory", []string{"--to", "dra", "--gpu-memory", "x"},
			command.ExitUsage},
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
