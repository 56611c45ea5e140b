// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestClaimedByOthers: the spec of a prepared claim names the GPU by its file or its UUID. Kerf's own specs and those
// of devices that are not prepared name none.
func TestClaimedByOthers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"k8s.gpu.nvidia.com-claim_1.yaml": `cdiVersion: 0.6.0
kind: k8s.gpu.nvidia.com/claim
devices:
- name: 1-gpu-3
  containerEdits:
    deviceNodes: [{path: /dev/nvidia3}, {path: /dev/nvidiactl}]
`,
		"k8s.gpu.example.com-claim_2.json": `{"cdiVersion":"0.6.0","kind":"k8s.gpu.example.com/claim","devices":[{"name":"x",
			"containerEdits":{"env":["NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-x"]}}]}`,
		"k8s.gpu.nvidia.com-device_base.yaml": `cdiVersion: 0.6.0
kind: k8s.gpu.nvidia.com/device
devices: [{name: gpu-5, containerEdits: {deviceNodes: [{path: /dev/nvidia5}]}}]
`,
		"kerf.dev-claim.json": `{"cdiVersion":"0.6.0","kind":"kerf.dev/claim","devices":[{"name":"x",
			"containerEdits":{"deviceNodes":[{"path":"/dev/nvidia6"}]}}]}`,
		"broken.yaml": "kind: [",
		"notes.txt":   "kind: k8s.gpu.nvidia.com/claim",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := ClaimedByOthers([]string{dir, filepath.Join(dir, "none")})
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, tc := range []struct {
		gpu  sharing.GPU
		want string
	}{
		{sharing.GPU{UUID: "GPU-a", Minor: 3}, "k8s.gpu.nvidia.com/claim"},
		{sharing.GPU{UUID: "GPU-b", Minor: 4}, "k8s.gpu.example.com/claim"},
		{sharing.GPU{UUID: "GPU-c", Minor: 5}, ""},
		{sharing.GPU{UUID: "GPU-d", Minor: 6}, ""},
		{sharing.GPU{UUID: "GPU-e", Minor: 33}, ""},
	} {
		got := ""
		for _, c := range all {
			if c.Gives(tc.gpu) {
				got += c.Kind
			}
		}
		if got != tc.want {
			t.Errorf("%s: given by %q, want %q", tc.gpu.UUID, got, tc.want)
		}
	}
}
