// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// In a pod without the folder of the agent's sockets, doctor checks the cluster. Where such a folder is, or is
// named, it checks the machine.
func TestPodChecksTheCluster(t *testing.T) {
	here := t.TempDir()
	missing := filepath.Join(here, "missing")
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	named := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KERF_DIR": missing}
	for name, tt := range map[string]struct {
		dir  string
		env  map[string]string
		want bool
	}{
		"a pod": {missing, pod, true}, "a pod of an agent": {here, pod, false},
		"a machine": {missing, nil, false}, "a named folder": {missing, named, false},
	} {
		a := &command.App{Dir: tt.dir, Getenv: func(key string) string { return tt.env[key] }}
		if got := ofCluster(&cobra.Command{}, a); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
