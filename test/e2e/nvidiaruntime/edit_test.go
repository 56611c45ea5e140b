// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func TestCreatedBundle(t *testing.T) {
	tests := map[string]string{ // arguments to the bundle, empty for another command
		"--root /run/x --log /l --log-format json create --bundle /b --pid-file /p id": "/b",
		"--root /run/x create --pid-file /p --bundle=/b id":                            "/b",
		"--systemd-cgroup create -b /b id":                                             "/b",
		"create id":                                                                    ".",
		"--root create start id":                                                       "",
		"start create":                                                                 "",
		"delete --force id":                                                            "",
		"--version":                                                                    "",
		"":                                                                             "",
	}
	for args, want := range tests {
		got, ok := createdBundle(strings.Fields(args))
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", args, got, ok)
		}
	}
}

const spec = `{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
  "devices": [{"name": "0", "containerEdits": {"env": ["GOT0=1"]}}, {"name": "GPU-a", "containerEdits": {"env": ["GOTA=1"]}},
    {"name": "all", "containerEdits": {"env": ["GOTALL=1"]}}],
  "containerEdits": {"env": ["COMMON=1"]}}`

func TestEditBundle(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia.json"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		env  []string
		want []string // what the edits add
		fail bool
	}{
		"not named":  {env: []string{"A=b"}},
		"empty":      {env: []string{"NVIDIA_VISIBLE_DEVICES="}},
		"none":       {env: []string{"NVIDIA_VISIBLE_DEVICES=none"}},
		"void":       {env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"overridden": {env: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"}},
		"all":        {env: []string{"NVIDIA_VISIBLE_DEVICES=all"}, want: []string{"COMMON=1", "GOTALL=1"}},
		"index, UUID": {env: []string{"NVIDIA_VISIBLE_DEVICES=0,GPU-a"},
			want: []string{"COMMON=1", "GOT0=1", "GOTA=1"}},
		"none of them": {env: []string{"NVIDIA_VISIBLE_DEVICES=7"}, fail: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bundle := t.TempDir()
			before, err := json.Marshal(specs.Spec{Process: &specs.Process{Env: tt.env}, Hostname: "h"})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(bundle, "config.json")
			if err := os.WriteFile(file, before, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := editBundle(cache, bundle); (err != nil) != tt.fail {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var after specs.Spec
			if err := json.Unmarshal(text, &after); err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(after.Process.Env, func(e string) bool { return slices.Contains(tt.env, e) })
			slices.Sort(got)
			if !slices.Equal(got, tt.want) || after.Hostname != "h" {
				t.Errorf("added %q, want %q; host name %q", got, tt.want, after.Hostname)
			}
		})
	}
}
