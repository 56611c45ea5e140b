// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// planned is an API server of two nodes: GPU 0 of the first is used, and the agent of the second was given labels of its own.
func planned(t *testing.T, document string) (kubeconfig string) {
	t.Helper()
	lists := map[string]string{
		"/api/v1/nodes": `{"metadata":{"name":"n1","labels":{"tier":"a"}}},{"metadata":{"name":"n2"}},{"metadata":{"name":"n3"}}`,
		"/api/v1/pods":  "",
		"/apis/kerf.dev/v1alpha1/gpunodes": `{"metadata":{"name":"n1"},"status":{"pool":"a","gpus":[{"uuid":"GPU-0","index":0},{"uuid":"GPU-1","index":1}],
			"claims":[{"id":"k-1","podUID":"u","namespace":"ns","pod":"train","fragments":[{"gpu":"GPU-0"}]},{"id":"k-2","fragments":[{"gpu":"GPU-0"}]}]}},
			{"metadata":{"name":"n2"},"status":{"pool":"a","gpus":[{"uuid":"GPU-2","index":0}]}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if items, ok := lists[r.URL.Path]; ok {
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, items)
			return
		}
		if document == "" || !strings.HasSuffix(r.URL.Path, "/configmaps/kerf-config") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]string{"sharing.yaml": document, "notes": "none"}})
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- {name: x, context: {cluster: c}}\ncurrent-context: x\n", server.URL)
}

func TestConfigPlan(t *testing.T) {
	const head = "apiVersion: kerf.dev/v1alpha1\nkind: SharingConfig\nspec:\n  pools:\n"
	before := head + "  - {name: a, nodeSelector: {tier: a}}\n  - {name: default}\n"
	for name, tt := range map[string]struct {
		before, after string
		args          []string
		code          int
		want, not     []string
	}{
		"the same": {before, before, []string{"plan"}, exitOK, []string{"says what the cluster's says", "node n1 (pool a): no GPU changes"}, []string{"n3"}},
		"settings": {before, head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 300}\n  - {name: default}\n", []string{"plan"}, exitOK, []string{
			"+ pools[a].powerLimitWatts: 300", "node n1 (pool a):", "  now    GPU 1: powerLimitWatts as it is -> 300W",
			"  waits  GPU 0: powerLimitWatts as it is -> 300W; for ns/train, grant k-2", "node n2 (pool a):\n  now    GPU 0: powerLimitWatts",
		}, nil},
		"backends of GPUs": {before, head + "  - {name: a, nodeSelector: {tier: a}, gpus: [{index: [0, 1], backends: [driver, mps, reactive], minEnforcement: client}]}\n  - {name: default}\n", []string{"plan"}, exitOK, []string{
			"+ pools[a].gpus[0].backends: [driver, mps, reactive]", "+ pools[a].gpus[0].minEnforcement: client", "node n1 (pool a):",
			"  now    GPU 1: backends of profile and pool -> [driver, mps, reactive], minEnforcement of the pool -> client",
			"  waits  GPU 0: backends of profile and pool -> [driver, mps, reactive], minEnforcement of the pool -> client; for ns/train, grant k-2",
		}, nil},
		"backends by diff": {before, head + "  - {name: a, nodeSelector: {tier: a}, gpus: [{index: [1], backends: [driver, libkerf]}]}\n  - {name: default}\n", []string{"diff"}, exitDiffers, []string{"+ pools[a].gpus[0].backends: [driver, libkerf]"}, nil},
		"another pool": {before, head + "  - {name: b, nodeSelector: {tier: a}}\n  - {name: default}\n", []string{"plan"}, exitOK, []string{
			"node n1 (pool a -> b): no GPU changes", `node n2: would not take it: its agent says pool "a"`,
		}, nil},
		"no pool for it": {before, head + "  - {name: a, nodeSelector: {tier: b}}\n", []string{"plan"}, exitOK, []string{"node n1: would not take it: no pool"}, nil},
		"json":           {before, before, []string{"plan", "-o", "json"}, exitOK, []string{`"differences": []`, `"node": "n1"`}, nil},
		"no document":    {"", before, []string{"plan"}, exitOK, []string{"note: there is no configmap", "+ pools[a].name: a"}, nil},
		"diff":           {before, head + "  - {name: a, nodeSelector: {tier: a}, overCap: kill}\n  - {name: default}\n", []string{"diff"}, exitDiffers, []string{"+ pools[a].overCap: kill", "differ in 1 fields"}, nil},
		"no difference":  {before, "# other words\n" + before, []string{"diff"}, exitOK, nil, []string{"pools"}},
		"a mistake":      {before, before + "  colour: red\n", []string{"plan"}, exitFailure, []string{"new.yaml: line 7: spec.colour is not a known field"}, nil},
		"one in force":   {"nothing", before, []string{"plan"}, exitFailure, []string{"the document of the cluster has mistakes"}, nil},
		"a wrong form":   {before, before, []string{"plan", "-o", "csv"}, exitUsage, []string{"is not a form of output"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"kubeconfig": planned(t, tt.before), "new.yaml": tt.after}
			out, errs, code := runConfig(t, files, "", append(tt.args, "--kubeconfig", "kubeconfig", "new.yaml")...)
			if code != tt.code {
				t.Errorf("status %d", code)
			}
			for _, w := range tt.want {
				if !strings.Contains(out+errs, w) {
					t.Errorf("no %q in:\n%s%s", w, out, errs)
				}
			}
			for _, w := range tt.not {
				if strings.Contains(out+errs, w) {
					t.Errorf("%q in:\n%s%s", w, out, errs)
				}
			}
		})
	}
}
