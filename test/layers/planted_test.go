// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package layers_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The checker itself: each planted violation must be found, and what is allowed must not.
func TestCheckFinds(t *testing.T) {
	own := func(paths ...string) []string {
		for i, path := range paths {
			paths[i] = module + "/" + path
		}
		return paths
	}
	tests := map[string]struct {
		pkg  pkg
		want string // in the one finding; empty for none
	}{
		"up": {pkg{path: "internal/cgroup", imports: own("sharing/ledger")},
			"imports sharing/ledger: an adapter opens"},
		"sideways": {pkg{path: "internal/cgroup", imports: own("internal/nvml")},
			"imports internal/nvml"},
		"sideways in the core": {pkg{path: "sharing/ledger", imports: own("sharing/config")},
			"imports sharing/config"},
		"model knows nothing": {pkg{path: "sharing", imports: own("internal/failpoint")},
			"imports internal/failpoint"},
		"down": {pkg{path: "sharing/node", imports: own("sharing", "sharing/ledger",
			"internal/cgroup", "internal/failpoint")}, ""},
		"within a folder": {pkg{path: "internal/kube/survey",
			imports: own("internal/kube/podspec", "internal/kube")}, ""},
		"within the simulator": {pkg{path: "sim/daemon", imports: own("sim/machine", "sim")}, ""},
		"simulator in a program": {pkg{path: "cmd/kerf", imports: own("sim/model")},
			"imports sim/model: the simulator is not part of the product"},
		"simulator in a backend": {pkg{path: "sharing/backend/mps", imports: own("sim/mps")},
			"the simulator is not part of the product"},
		"simulator in a suite": {pkg{path: "test/demo", imports: own("sim/launch")}, ""},
		"product in simulator": {pkg{path: "sim/daemon", imports: own("internal/nvml")},
			"imports internal/nvml: the simulator stands in"},
		"tool in simulator": {pkg{path: "sim/cmd/gpusim", imports: own("sharing", "internal/process",
			"sim/wire")}, ""},
		"name that begins alike": {pkg{path: "sharing/nodes", imports: nil}, "no layer"},
		"new folder":             {pkg{path: "pkg/util"}, "no layer"},
		"program imports program": {pkg{path: "cmd/kerf", imports: own("cmd/kerf-agent/app")},
			"imports cmd/kerf-agent/app"},
		"command line elsewhere": {pkg{path: "cmd/kerf-agent", imports: own("internal/cli/config")},
			"belongs to its program"},
		"experiment in a product": {pkg{path: "cmd/kerf", imports: own("lab/policy")}, "imports lab/policy"},
		"hook's client elsewhere": {pkg{path: "sharing/node/agent", imports: own("hooks/oci/client")},
			"the hook program's alone"},
		"hook's client":    {pkg{path: "cmd/kerf-hook", imports: own("hooks/oci/client")}, ""},
		"hook with more":   {pkg{path: "cmd/kerf-hook", imports: own("sharing")}, "it is its client"},
		"client with more": {pkg{path: "hooks/oci/client", imports: own("sharing")}, "its client is its frames"},
		"dcgm in the agent": {pkg{path: "sharing/node/agent", imports: own("internal/dcgm")},
			"what may crash in DCGM"},
		"its source in the agent": {pkg{path: "sharing/node/cluster", imports: own("monitor/source")},
			"what may crash in DCGM"},
		"monitor in its program": {pkg{path: "cmd/kerf-monitor", imports: own("monitor/service", "monitor/source")},
			""},
		"command line": {pkg{path: "cmd/kerf", imports: own("internal/cli")}, ""},
		"driver next to its adapter": {pkg{path: "sharing/backend",
			imports: []string{"github.com/NVIDIA/go-nvml/pkg/nvml"}}, "the driver has one adapter"},
		"driver through its adapter": {pkg{path: "internal/nvml",
			imports: []string{"github.com/NVIDIA/go-nvml/pkg/nvml"}}, ""},
		"grpc in the runtime": {pkg{path: "sharing/node", imports: []string{"google.golang.org/grpc/codes"}},
			"gRPC is how"},
		"grpc in the server": {pkg{path: "sharing/node/nodeserver", imports: []string{"google.golang.org/grpc/codes"}},
			""},
		"new dependency": {pkg{path: "cmd/kerf", imports: []string{"example.org/x"}},
			"no adapter for this module"},
		"command in an adapter": {pkg{path: "internal/cgroup", imports: []string{"os/exec"}}, "no external commands"},
		"log is not slog":       {pkg{path: "internal/cgroup", imports: []string{"log/slog"}}, ""},
		"log":                   {pkg{path: "cmd/kerf", imports: []string{"log"}}, "passed in"},
		"pure with files": {pkg{path: "sharing/config", imports: []string{"os"}},
			"sharing/config imports os: it is pure"},
		"pure with clock": {pkg{path: "sharing/ledger", acts: []string{"l.go:1 calls time.Now"}},
			"calls time.Now: it is pure"},
		"clock elsewhere": {pkg{path: "sharing/node", acts: []string{"n.go:1 calls time.Now"}}, ""},
		"no comment":      {pkg{path: "sharing", comment: "Sharing is ...\n"}, "no package comment"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.pkg.comment == "" {
				test.pkg.comment = "Package x is there.\n"
			}
			got := check([]pkg{test.pkg})
			if test.want == "" {
				if len(got) > 0 {
					t.Errorf("found %q, want nothing", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("found %q, want one with %q", got, test.want)
			}
		})
	}
}

// A small module with known faults goes the whole way, go list and parser included.
func TestLoadAndCheckFindPlanted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module " + module + "\n\ngo 1.26.0\n",
		"sharing/model.go": "// Package sharing is the model.\npackage sharing\n",
		"sharing/ledger/ledger.go": "// Package ledger reads the clock.\npackage ledger\n\nimport \"time\"\n\nfunc " +
			"F() { go F(); _ = time.Now() }\n",
		"sharing/ledger/l_test.go":  "package ledger\n\nimport \"os\"\n\nvar _ = os.Args\n",
		"internal/cgroup/cgroup.go": "package cgroup\n\nimport _ \"" + module + "/sharing/ledger\"\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pkgs, err := load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := check(pkgs)
	want := []string{
		"internal/cgroup imports sharing/ledger",
		"internal/cgroup has no package comment",
		"sharing/ledger: ledger.go:6 starts a goroutine",
		"sharing/ledger: ledger.go:6 calls time.Now",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("found:\n%s\nwant beginnings:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
