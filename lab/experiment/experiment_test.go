// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestExperiment(t *testing.T) {
	dir := t.TempDir()
	nodes, pods := filepath.Join(dir, "nodes.csv"), filepath.Join(dir, "pods.csv")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(nodes, "sn,cpu_milli,memory_mib,gpu,model\n"+strings.Repeat("n,64000,65536,4,T4\n", 5))
	write(pods, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,1,810\nb,1000,1,1,470\nc,1000,1,2,1000\n")
	call := func(more ...string) (string, int) {
		out := &bytes.Buffer{}
		a := &command.App{Out: out, ErrOut: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
		code, _ := a.Run(Command(a), append([]string{"--trace-nodes", nodes, "--trace-pods", pods}, more...))
		return out.String(), code
	}

	text, code := call("--policy", "kerf,fgd", "--seeds", "42-43", "-o", "json")
	var runs []map[string]any
	if err := json.Unmarshal([]byte(text), &runs); err != nil || code != command.ExitOK || len(runs) != 4 {
		t.Fatalf("status %d, %d runs, %v:\n%s", code, len(runs), err, text)
	}
	if r := runs[3]; r["policy"] != "fgd" || r["trace"] != "pods" || r["seed"] != 43.0 ||
		r["capacityGPUMilli"] != 20000.0 {
		t.Errorf("last run %v", r)
	}
	if text, code := call(); code != command.ExitOK || !strings.Contains(text, "@130") ||
		strings.Count(text, "\n") != 2 {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("-o", "yaml", "--policy", "spread"); code != command.ExitOK ||
		!strings.HasPrefix(text, "- policy: \"spread\"\n") {
		t.Errorf("status %d: %s", code, text)
	}
	if text, code := call("-o", "csv", "--policy", "spread"); code != command.ExitOK ||
		!strings.HasPrefix(text, "policy,trace,seed,") || !strings.Contains(text, "\nspread,pods,42,20000,") {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--churn", "0.5"); code != command.ExitOK || !strings.Contains(text, "REJECTED GPU") ||
		strings.Count(text, "\n") != 2 {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--churn", "0.9", "--usable", "90", "--churn-lives", "1"); code != command.ExitOK ||
		!strings.Contains(text, "BY ONE POOL") {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--churn", "1.5", "--bound", "--churn-lives", "1"); code != command.ExitOK ||
		!strings.Contains(text, "NO PACKING") {
		t.Errorf("status %d:\n%s", code, text)
	}
	text, code = call("--churn", "1.5", "--bound", "--churn-lives", "1", "-o", "json")
	var bounded []struct {
		NoPacking *struct {
			Percent float64        `json:"rejectedDemandPercent"`
			Rejects map[string]int `json:"rejects"`
		} `json:"noPacking"`
	}
	if err := json.Unmarshal([]byte(text), &bounded); err != nil || code != command.ExitOK || len(bounded) != 1 ||
		bounded[0].NoPacking == nil || bounded[0].NoPacking.Percent <= 0 {
		t.Errorf("status %d, %v:\n%s", code, err, text)
	}
	if text, code := call("--churn", "1.5", "--bound", "--churn-lives", "1", "-o", "csv"); code != command.ExitOK ||
		!strings.Contains(text, ",pooled_rejected_percent,no_packing_percent,moves_per_1000_pods,rejects_cpu-only,") {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--policy", "kerf,fgd", "--workload-model", "online"); code != command.ExitOK ||
		strings.Count(text, "\n") != 3 {
		t.Errorf("status %d:\n%s", code, text)
	}
	for _, wrong := range [][]string{{"--seeds", "9-1"}, {"--seeds", "x"}, {"-o", "xml"}, {"--load", "0"},
		{"--load", "NaN"}, {"--churn", "-1"}, {"--churn-lives", "0"}, {"--usable", "101"}, {"--workload-model", "x"},
		{"--bound"}, {"--bound", "--load", "1"}} {
		if _, code := call(wrong...); code != command.ExitUsage {
			t.Errorf("%v: status %d", wrong, code)
		}
	}
	scenario, asked := filepath.Join(dir, "cluster.yaml"), filepath.Join(dir, "new.yaml")
	write(scenario,
		"machines:\n- {name: a, count: 2, cores: 8, gpus: 1, model: A}\npods:\n- {name: p, percent: 60, cores: 1}\n")
	write(asked, "pods:\n- {name: q, count: 5, percent: 70, cores: 1}\n")
	alone := func(more ...string) (string, int) {
		out := &bytes.Buffer{}
		a := &command.App{Out: out, ErrOut: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
		code, _ := a.Run(Command(a), append([]string{"--load", "0.1"}, more...))
		return out.String(), code
	}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--workload", scenario}, []string{"POLICY", "kerf"}},
		{[]string{"--workload", scenario, "--pods", asked},
			[]string{"q     5      2", "2 nodes: too little free on any one GPU",
				"all fit with 3 more nodes of A (3 GPUs)"}},
		{[]string{"--workload", scenario, "--pods", asked, "--remove-nodes", "a-1", "--policy", "kerf,fgd"},
			[]string{"q     5      1", "1 node: ", "fgd: "}},
		{[]string{"--workload", scenario, "--pods", asked, "-o", "json", "--mig", "a-?"},
			[]string{"\"placed\": 2", "\"gpus\": 3"}},
	} {
		text, code := alone(tt.args...)
		for _, want := range tt.want {
			if code != command.ExitOK || !strings.Contains(text, want) {
				t.Errorf("%v: status %d, no %q in:\n%s", tt.args, code, want, text)
			}
		}
	}
	for _, wrong := range [][]string{
		{}, {"--workload", scenario, "--trace-pods", pods}, {"--workload", scenario, "--pods", asked, "--churn", "1"},
		{"--workload", scenario, "--pods", asked, "-o", "csv"}, {"--workload", scenario, "--pods", asked, "--plot",
			"x.svg"}, {"--workload", scenario, "--remove-nodes", "["},
	} {
		if _, code := alone(wrong...); code != command.ExitUsage {
			t.Errorf("%v: status %d", wrong, code)
		}
	}
	if _, code := alone("--workload", scenario, "--remove-nodes", "*"); code != command.ExitFailure {
		t.Errorf("no node left: status %d", code)
	}
	if _, code := alone("--workload", asked); code != command.ExitFailure {
		t.Errorf("no machines: status %d", code)
	}
	drawing := filepath.Join(dir, "out.svg")
	if _, code := alone("--workload", scenario, "--seeds", "1-2", "--policy", "kerf,bestfit", "--plot",
		drawing); code != command.ExitOK {
		t.Errorf("--plot: status %d", code)
	}
	if svg, err := os.ReadFile(drawing); err != nil || !strings.Contains(string(svg), "end, bestfit, seed 1<") {
		t.Errorf("--plot: %v:\n%s", err, svg)
	}
	timed := filepath.Join(dir, "timed.yaml")
	write(timed, "machines:\n- {count: 2, cores: 8, gpus: 1}\npods:\n- {percent: 60, cores: 1, vary: 0.5}\ndraw: "+
		"{pods: 50, seed: 3}\n"+
		"arrivals: {distribution: constant, mean: 1h}\nlifetimes: {distribution: lognormal, mean: 2h, sigma: 0.5}\n")
	text, code = alone("--workload", timed)
	if code != command.ExitOK || strings.Contains(text, "LOAD") {
		t.Errorf("--load with arrivals that have a mean: status %d:\n%s", code, text)
	}
	out := &bytes.Buffer{}
	a := &command.App{Out: out, ErrOut: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
	if code, _ := a.Run(Command(a), []string{"--workload", timed}); code != command.ExitOK ||
		!strings.Contains(out.String(), "0.6") || !strings.Contains(out.String(), "LOAD") {
		t.Errorf("arrivals that have a mean: status %d:\n%s", code, out)
	}
	write(timed, "machines:\n- {count: 2, gpus: 1}\npods:\n- {percent: 60}\narrivals: {mean: 1h}\n")
	if _, code := alone("--workload", timed); code != command.ExitFailure {
		t.Errorf("arrivals without life times: status %d", code)
	}
	write(asked, "pods:\n- {nam: q}\n")
	if _, code := alone("--workload", scenario, "--pods", asked); code != command.ExitFailure {
		t.Errorf("a misspelt field: status %d", code)
	}
	write(pods, "name\n")
	if _, code := call(); code != command.ExitFailure {
		t.Errorf("a list without columns: status %d", code)
	}
}

// Each error in the input of an experiment says what is wrong, where, and what to do.
func TestExperimentRefusesBadInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", "machines:\n- {name: a, count: 2, cores: 8, gpus: 1, model: A, gpuMemory: "+
		"80Gi}\npods:\n- {name: p, percent: 60, cores: 1}\n")
	list, none := file("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nn,1000,1,1,T4\n"),
		file("none.csv", "sn,cpu_milli,memory_mib,gpu,model\n")
	for name, tt := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"nothing": {nil, command.ExitUsage,
			[]string{"--trace-nodes and --trace-pods, --workload or --from-cluster are needed"}},
		"no such list": {[]string{"--trace-nodes", "/none.csv", "--trace-pods", list},
			command.ExitFailure, []string{"/none.csv: no such file"}},
		"a list without rows": {[]string{"--trace-nodes", none, "--trace-pods", list}, command.ExitFailure,
			[]string{"none.csv: there is no row below the first line"}},
		"nodes as pods": {[]string{"--trace-nodes", list, "--trace-pods", list}, command.ExitFailure,
			[]string{`nodes.csv: no column "name"`, "are needed"}},
		"unknown policy": {[]string{"--workload", good, "--policy", "kerf,kerff"}, command.ExitUsage,
			[]string{`--policy "kerff": not one of kerf, fgd, bestfit`}},
		"no policy": {[]string{"--workload", good, "--policy", ""}, command.ExitUsage,
			[]string{"--policy is empty: write one or more of kerf,"}},
		"no folder for a plot": {[]string{"--workload", good, "--plot", "/none/x.svg"}, command.ExitUsage,
			[]string{`--plot "/none/x.svg": its folder:`, "no such file"}},
		"a plot of a cluster as it is": {[]string{"--from-cluster", "--plot", "x.svg"}, command.ExitUsage,
			[]string{"--plot draws what fills up"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
			a := &command.App{Out: out, ErrOut: errOut, Getenv: func(string) string { return "" }}
			code, _ := a.Run(Command(a), tt.args)
			if code != tt.code || out.Len() > 0 {
				t.Errorf("status %d, want %d; it answers %q and says %q", code, tt.code, out, errOut)
			}
			for _, want := range tt.want {
				if !strings.Contains(errOut.String(), want) {
					t.Errorf("it does not say %q: %s", want, errOut)
				}
			}
		})
	}
}

// Two policies are asked about a cluster that runs.
func TestExperimentOnACluster(t *testing.T) {
	f := clitest.StartCluster(t, nil)
	out := &bytes.Buffer{}
	a := &command.App{Out: out, ErrOut: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
	code, _ := a.Run(Command(a), []string{"--from-cluster", "--kubeconfig", f.Config, "--policy", "kerf,nvidia-whole"})
	for _, want := range []string{"kerf: 62.50", "nvidia-whole: 62.50", "3 nodes: too little free on any one GPU"} {
		if code != command.ExitOK || !strings.Contains(out.String(), want) {
			t.Errorf("status %d, no %q in:\n%s", code, want, out)
		}
	}
}
