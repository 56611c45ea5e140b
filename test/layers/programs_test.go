// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package layers_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// agentRuns are the packages of the agent that execute programs, and the programs.
var agentRuns = map[string][]string{
	"internal/nvidiasmi":   {"nvidia-smi"},
	"internal/mps":         {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"},
	"internal/cudacontext": {"kerf-agent hold-context"},
}

// The threat model lists every program that the agent executes: no other package of it can, and each program has its
// row.
func TestThreatModelNamesTheAgentsPrograms(t *testing.T) {
	pkgs, err := load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := runners(pkgs, "cmd/kerf-agent"), slices.Sorted(maps.Keys(agentRuns)); !slices.Equal(got, want) {
		t.Errorf("packages of the agent that execute programs: %q, want %q; docs/reference/agent-rights.md has to "+
			"say which, when and how they are found", got, want)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/agent-rights.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, programs := range agentRuns {
		for _, p := range programs {
			if !regexp.MustCompile("(?m)^\\| [^|]*`" + p + "`[^|]* \\| .{20,} \\| .{20,} \\|$").Match(text) {
				t.Errorf("docs/reference/agent-rights.md has no row for the program %s", p)
			}
		}
	}
}

// runners are the packages that import os/exec, of those that a program is made of.
func runners(pkgs []pkg, program string) []string {
	var found []string
	for at, todo := 0, []string{program}; at < len(todo); at++ {
		for _, p := range pkgs {
			if p.path != todo[at] {
				continue
			}
			for _, name := range p.imports {
				if name == "os/exec" {
					found = append(found, p.path)
				} else if path := relative(name); path != name && !slices.Contains(todo, path) {
					todo = append(todo, path)
				}
			}
		}
	}
	slices.Sort(found)
	return found
}
