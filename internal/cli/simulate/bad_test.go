// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// For wrong input, the error has the problem, its place and the remedy. Nothing is computed from wrong input.
func TestSimulateRefusesBadInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const machines = "machines:\n- {name: a, count: 2, cores: 8, gpus: 1, model: A, gpuMemory: 80Gi}\n"
	const pods = "pods:\n- {name: p, percent: 60, cores: 1}\n"
	good := file("good.yaml", machines+pods)
	workload := func(name, text string) []string { return []string{"--workload", file(name, text)} }
	asked := func(name, text string, more ...string) []string {
		return append([]string{"--workload", good, "--pods", file(name, text)}, more...)
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"nothing": {nil, command.ExitUsage, []string{"--workload or --from-cluster is needed"}},
		"no such workload": {[]string{"--workload", "/none.yaml"}, command.ExitFailure,
			[]string{"/none.yaml: no such file"}},
		"an empty workload": {workload("empty.yaml", ""), command.ExitFailure,
			[]string{"empty.yaml is empty: write machines and pods"}},
		"no machines": {workload("nomachines.yaml", pods), command.ExitFailure,
			[]string{"machines and pods are both needed"}},
		"two documents": {workload("two.yaml", machines+pods+"---\n"+pods), command.ExitFailure,
			[]string{"more than one document: write one, without ---"}},
		"a manifest": {workload("manifest.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"),
			command.ExitFailure, []string{"manifest of Kubernetes: write machines and pods"}},
		"a word": {workload("word.yaml", "hello\n"), command.ExitFailure,
			[]string{`line 1: "hello" stands where a file with machines and pods is wanted`}},
		"no YAML": {workload("no.yaml", "{"), command.ExitFailure, []string{"no.yaml: yaml: line 1"}},
		"unknown field": {
			workload("field.yaml", machines+"pods:\n- {name: p, percents: 60}\n"), command.ExitFailure,
			[]string{`field.yaml: line 4: a type of pod has no field "percents": it has`, "gpus", "percent,"},
		},
		"unknown field of a machine": {workload("machine.yaml", "machines:\n- {gives: whole}\n"+pods),
			command.ExitFailure, []string{`line 2: a machine has no field "gives": it has cores,`}},
		"text for a number": {workload("number.yaml", machines+"pods:\n- {percent: 60x}\n"),
			command.ExitFailure, []string{`line 4: "60x" stands where a number is wanted`}},
		"huge count": {workload("count.yaml", machines+"pods:\n- {count: 99999999999999999999}\n"),
			command.ExitFailure, []string{"line 4: ", "where a whole number is wanted"}},
		"a mapping for a list": {workload("mapping.yaml", "machines: {a: 1}\n"+pods), command.ExitFailure,
			[]string{"line 1: a mapping stands where a list is wanted"}},
		"more percent than there is": {workload("percent.yaml", machines+"pods:\n- {percent: 600}\n"),
			command.ExitFailure, []string{`pods[0].percent "600"`, "at most 100"}},
		"no unit": {workload("unit.yaml", machines+"pods:\n- {gpuMemory: 10}\n"), command.ExitFailure,
			[]string{`pods[0].gpuMemory "10" is less than 1 MiB; write a unit, such as 10Gi`}},
		"more memory than there is anywhere": {
			workload("memory.yaml", machines+"pods:\n- {gpuMemory: 99999999Ti}\n"), command.ExitFailure,
			[]string{`pods[0].gpuMemory "99999999Ti" is too large`},
		},
		"no requests": {workload("cpu.yaml", machines+"pods:\n- {cores: 1}\n"), command.ExitFailure,
			[]string{"cpu: no pod requests a GPU or a share"}},
		"memory of no machine": {workload("sizes.yaml",
			"machines:\n- {count: 2, gpus: 1}\npods:\n- {gpuMemory: 10Gi}\n"), command.ExitFailure,
			[]string{"write gpuMemory of the machines"}},
		"bad unit in --pods": {asked("asked.yaml", "pods:\n- {memory: 10Gg, percent: 5}\n"), command.ExitFailure,
			[]string{`asked.yaml: pods[0].memory "10Gg" has an unknown unit "Gg"; write a number with a unit`}},
		"no pods in --pods": {asked("nopods.yaml", "draw: {pods: 3}\n"), command.ExitFailure,
			[]string{"nopods.yaml: there are no pods: write a list of them"}},
		"machines in --pods": {asked("machines.yaml", machines+pods), command.ExitFailure,
			[]string{"leave machines and arrivals out"}},
		"no such --pods": {[]string{"--workload", good, "--pods", "/none.yaml"}, command.ExitFailure,
			[]string{"/none.yaml: no such file"}},
		"--pods as CSV": {asked("csv.yaml", pods, "-o", "csv"), command.ExitUsage,
			[]string{"table, json or yaml"}},
		"negative --load": {[]string{"--workload", good, "--load", "-1"}, command.ExitUsage,
			[]string{"--load -1: write a number above 0"}},
		"huge --load": {[]string{"--workload", good, "--load", "1e9"}, command.ExitUsage,
			[]string{"--load 1e+09", "at most 100"}},
		"bad seeds": {[]string{"--workload", good, "--seeds", "1-99999999"}, command.ExitUsage,
			[]string{"no range of at most 10000 numbers"}},
		"a node that is not": {[]string{"--workload", good, "--remove-nodes", "rack3-*"}, command.ExitFailure,
			[]string{`--remove-nodes "rack3-*": no node has such a name; they are called a-0, a-1`}},
		"no node for MIG": {[]string{"--workload", good, "--mig", "a-*,!b-0"}, command.ExitFailure,
			[]string{`--mig "!b-0": no node has such a name`}},
		"bad pattern": {[]string{"--workload", good, "--mig", "["}, command.ExitUsage,
			[]string{`--mig "[" has a [ without its ]; write a pattern over the nodes' names`}},
		"all nodes gone": {[]string{"--workload", good, "--remove-nodes", "*"}, command.ExitFailure,
			[]string{"--remove-nodes takes every one away"}},
		"another form of output": {[]string{"--workload", good, "-o", "xml"}, command.ExitUsage,
			[]string{"table, json, yaml or csv"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
			a := &command.App{Out: out, ErrOut: errOut, Getenv: func(string) string { return "" }}
			code, _ := a.Execute(append([]string{"simulate"}, tt.args...), Commands)
			if code != tt.code || out.Len() > 0 {
				t.Errorf("status %d, want %d; it answers %q and says %q", code, tt.code, out, errOut)
			}
			for _, want := range tt.want {
				if !strings.Contains(errOut.String(), want) {
					t.Errorf("it does not say %q: %s", want, errOut)
				}
			}
			if said := errOut.String(); strings.Contains(said, "simulate.") || strings.Contains(said, "unmarshal") {
				t.Errorf("it speaks of Go's types: %s", said)
			}
		})
	}
}

// Where nothing was refused, no load is said at which something was.
func TestSimulateWithoutRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte(
		"machines:\n- {count: 5, cores: 8, gpus: 4}\npods:\n- {name: p, percent: 50, cores: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	a := &command.App{Out: out, ErrOut: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
	code, _ := a.Execute([]string{"simulate", "--workload", path, "--load", "0.95"}, Commands)
	row := strings.Fields(strings.SplitN(out.String(), "\n", 3)[1])
	if n := len(row); code != command.ExitOK || n < 3 || row[n-3] != "-" || row[n-2] != "0" {
		t.Errorf("status %d:\n%s", code, out)
	}
}
