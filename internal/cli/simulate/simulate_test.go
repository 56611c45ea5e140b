// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

func TestSimulate(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cluster := filepath.Join(dir, "pods.yaml")
	write(cluster, "machines:\n- {name: n, count: 5, cores: 64, memory: 64Gi, gpus: 4, model: T4}\n"+
		"pods:\n- {name: a, cores: 1, percent: 81}\n- {name: b, cores: 1, percent: 47}\n"+
		"- {name: c, cores: 1, gpus: 2}\n")
	call := func(more ...string) (string, int) {
		out := &bytes.Buffer{}
		a := &command.App{Out: out, ErrOut: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
		code, _ := a.Execute(append([]string{"simulate", "--workload", cluster}, more...), Commands)
		return out.String(), code
	}

	text, code := call("--seeds", "42-45", "-o", "json")
	var runs []map[string]any
	if err := json.Unmarshal([]byte(text), &runs); err != nil || code != command.ExitOK || len(runs) != 4 {
		t.Fatalf("status %d, %d runs, %v:\n%s", code, len(runs), err, text)
	}
	if r := runs[3]; r["policy"] != "kerf" || r["trace"] != "pods" || r["seed"] != 45.0 ||
		r["capacityGPUMilli"] != 20000.0 {
		t.Errorf("last run %v", r)
	}
	if text, code := call(); code != command.ExitOK || !strings.Contains(text, "@130") ||
		strings.Count(text, "\n") != 2 {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("-o", "yaml"); code != command.ExitOK || !strings.HasPrefix(text, "- policy: \"kerf\"\n") {
		t.Errorf("status %d: %s", code, text)
	}
	if text, code := call("-o", "csv"); code != command.ExitOK || !strings.HasPrefix(text, "policy,trace,seed,") ||
		!strings.Contains(text, "\nkerf,pods,42,20000,") {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--churn", "0.5"); code != command.ExitOK || !strings.Contains(text, "REJECTED GPU") ||
		strings.Count(text, "\n") != 2 {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--workload-model", "online"); code != command.ExitOK || strings.Count(text, "\n") != 2 {
		t.Errorf("status %d:\n%s", code, text)
	}
	for _, wrong := range [][]string{{"--seeds", "9-1"}, {"--seeds", "x"}, {"-o", "xml"}, {"--load", "0"},
		{"--load", "NaN"}, {"--churn", "-1"}, {"--workload-model", "x"}} {
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
		code, _ := a.Execute(append([]string{"simulate", "--load", "0.1"}, more...), Commands)
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
		{[]string{"--workload", scenario, "--pods", asked, "--remove-nodes", "a-1"},
			[]string{"q     5      1", "1 node: "}},
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
		{}, {"--workload", scenario, "--from-cluster"}, {"--workload", scenario, "--pods", asked, "--churn", "1"},
		{"--workload", scenario, "--pods", asked, "-o", "csv"}, {"--workload", scenario, "--remove-nodes", "["},
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
	if code, _ := a.Execute([]string{"simulate", "--workload", timed}, Commands); code != command.ExitOK ||
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
}

// The bar is for people. It appears on a terminal, and not if a program reads the output.
func TestSimulateShowsProgressOnATerminal(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(scenario, []byte(
		"machines:\n- {count: 5, cores: 8, gpus: 4}\npods:\n- {name: p, percent: 60, cores: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	yes := func() (int, int, bool) { return 60, 24, true }
	no := func() (int, int, bool) { return 0, 0, false }
	for _, tt := range []struct {
		name     string
		out, err command.Screen
		args     []string
		shown    bool
	}{
		{"terminal", yes, yes, nil, true},
		{"departures", yes, yes, []string{"--churn", "0.9"}, true},
		{"table to a file", no, yes, nil, true},
		{"errors to a file", yes, no, nil, false},
		{"JSON", yes, yes, []string{"-o", "json"}, true},
		{"JSON to a pipe", no, yes, []string{"-o", "json"}, false},
		{"CSV to a pipe", no, yes, []string{"-o", "csv"}, false},
	} {
		out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
		a := &command.App{Out: out, ErrOut: errOut, Getenv: func(string) string { return "" }, Screen: tt.out,
			ErrScreen: tt.err}
		code, _ := a.Execute(append([]string{"simulate", "--workload", scenario, "--seeds", "1-2"}, tt.args...),
			Commands)
		if text := errOut.String(); code != command.ExitOK || !tt.shown && text != "" || tt.shown &&
			(!strings.Contains(text, "[###############               ]  50 %  ") ||
				!strings.Contains(text, "100 %  kerf, seed 2") || !strings.HasSuffix(text, "\r\x1b[K")) {
			t.Errorf("%s: status %d: %q", tt.name, code, text)
		}
		if strings.Contains(out.String(), "###") {
			t.Errorf("%s: the bar is in the output", tt.name)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(errOut.String(), "\x1b[K", ""), "\r") {
			if len(line) >= 60 {
				t.Errorf("%s: a line of %d would be wrapped", tt.name, len(line))
			}
		}
	}
}
