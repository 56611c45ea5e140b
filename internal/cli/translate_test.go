// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestTranslateCommand(t *testing.T) {
	const pod = "kind: Pod\nmetadata: {name: a, namespace: team}\nspec: {containers: [{name: c, resources: {limits: {LIMIT}}}]}\n"
	for name, tt := range map[string]struct {
		limit, want, errs string
		args              []string
		code              int
	}{
		"a quantity":   {"nvidia.com/gpumem: 4k", `kerf.dev/gpu-memory-gib: "4"`, "1 pods found, 1 translated", nil, exitOK},
		"a replica":    {"nvidia.com/gpu: 1", `kerf.dev/gpu-percent: "25"`, "one of 4 replicas", []string{"--replicas", "4", "--gpu-is-replica"}, exitOK},
		"elsewhere":    {"nvidia.com/gpu: 1", "nvidia.com/gpu: 1", "0 pods found", []string{"-n", "other"}, exitOK},
		"no size":      {"nvidia.com/gpu.shared: 1", "", "Pod team/a: container c: nvidia.com/gpu.shared", nil, exitFailure},
		"half a GPU":   {"nvidia.com/gpu: 500m", "", "is not a number of GPUs", nil, exitFailure},
		"no number of": {"nvidia.com/gpu: 1", "", "--gpu-is-replica needs to know", []string{"--gpu-is-replica"}, exitUsage},
		"too many":     {"nvidia.com/gpu: 1", "", `--replicas "101"`, []string{"--replicas", "101"}, exitUsage},
	} {
		p := newInProcess(nil)
		p.app.in = strings.NewReader(strings.Replace(pod, "LIMIT", tt.limit, 1))
		code, _ := p.app.main(append([]string{"translate", "-"}, tt.args...))
		if out := p.out.String(); code != tt.code || !strings.Contains(out, tt.want) || !strings.Contains(p.errOut.String(), tt.errs) || code != exitOK && out != "" {
			t.Errorf("%s: status %d: %s%s", name, code, out, p.errOut.String())
		}
	}
}
