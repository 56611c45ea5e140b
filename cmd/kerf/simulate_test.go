// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimulate(t *testing.T) {
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
		a := &app{out: out, errOut: &bytes.Buffer{}, getenv: func(string) string { return "" }}
		code, _ := a.main(append([]string{"simulate", "--trace-nodes", nodes, "--trace-pods", pods}, more...))
		return out.String(), code
	}

	text, code := call("--policy", "kerf,fgd", "--seeds", "42-43", "-o", "json")
	var runs []map[string]any
	if err := json.Unmarshal([]byte(text), &runs); err != nil || code != exitOK || len(runs) != 4 {
		t.Fatalf("status %d, %d runs, %v:\n%s", code, len(runs), err, text)
	}
	if r := runs[3]; r["policy"] != "fgd" || r["trace"] != "pods" || r["seed"] != 43.0 || r["capacity_gpu_milli"] != 20000.0 {
		t.Errorf("last run %v", r)
	}
	if text, code := call(); code != exitOK || !strings.Contains(text, "@130") || strings.Count(text, "\n") != 2 {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("-o", "csv", "--policy", "spread"); code != exitOK || !strings.HasPrefix(text, "policy,trace,seed,") || !strings.Contains(text, "\nspread,pods,42,20000,") {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--churn", "0.5"); code != exitOK || !strings.Contains(text, "REJECTED GPU") || strings.Count(text, "\n") != 2 {
		t.Errorf("status %d:\n%s", code, text)
	}
	if text, code := call("--policy", "kerf,fgd", "--typical", "online"); code != exitOK || strings.Count(text, "\n") != 3 {
		t.Errorf("status %d:\n%s", code, text)
	}
	for _, wrong := range [][]string{{"--seeds", "9-1"}, {"--seeds", "x"}, {"-o", "xml"}, {"--inflate", "0"}, {"--inflate", "NaN"}, {"--churn", "-1"}, {"--typical", "x"}} {
		if _, code := call(wrong...); code != exitUsage {
			t.Errorf("%v: status %d", wrong, code)
		}
	}
	write(pods, "name\n")
	if _, code := call(); code != exitFailure {
		t.Errorf("a list without columns: status %d", code)
	}
}
