// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// planned is an API server of two nodes. GPU 0 of the first is in use. The agent of the second has explicit labels.
// Both apply the ConfigMap's config unless the test says otherwise for the first.
func planned(t *testing.T, document, applied string) (kubeconfig string) {
	t.Helper()
	same := ""
	if document != "" {
		same = fmt.Sprintf(`"config":{"sha256":%q},`, config.Hash([]config.File{{Data: []byte(document)}}))
	}
	if applied == "" {
		applied = same
	}
	lists := map[string]string{
		"/api/v1/nodes": `{"metadata":{"name":"n1","labels":{"tier":"a"}}},{"metadata":{"name":"n2"}},{"metadata":{"name":"n3"}}`,
		"/api/v1/pods":  "",
		"/apis/kerf.dev/v1alpha1/gpunodes": `{"metadata":{"name":"n1"},"status":{` + applied +
			`"pool":"a","gpus":[{"uuid":"GPU-0","index":0,"migState":{"memorySlices":8}},{"uuid":"GPU-1","index":1,"migState":{"memorySlices":8}}],
			"grants":[{"id":"k-1","podUID":"u","namespace":"ns","pod":"train","profile":"s","shares":[{"gpu":"GPU-0"}]},{"id":"k-2","shares":[{"gpu":"GPU-0"}]}]}},
			{"metadata":{"name":"n2"},"status":{` + same +
			`"pool":"a","gpus":[{"uuid":"GPU-2","index":0,"levels":["exclusive","none"],"levelReason":"driver: too old"}]}}`,
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
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]string{"sharing.yaml": document,
			"notes": "none"}})
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- "+
		"{name: x, context: {cluster: c}}\ncurrent-context: x\n", server.URL)
}

func TestConfigPlan(t *testing.T) {
	const head = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n"
	before := head + "  - {name: a, nodeSelector: {tier: a}}\n  - {name: default}\n"
	for name, tt := range map[string]struct {
		before, after string
		args          []string
		code          int
		want, not     []string
	}{
		"the same": {before, before, []string{"plan"}, command.ExitOK, []string{"has no differences from the cluster",
			"node n1 (pool a): no GPU changes"}, []string{"n3"}},
		"settings": {before,
			head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 300}\n  - {name: default}\n",
			[]string{"plan"}, command.ExitOK, []string{
				"+ pools[a].powerLimitWatts: 300", "node n1 (pool a):",
				"  now    GPU 1: powerLimitWatts as it is -> 300W",
				"  waits  GPU 0: powerLimitWatts as it is -> 300W; for ns/train, grant k-2",
				"node n2 (pool a):\n  now    GPU 0: powerLimitWatts",
			}, nil},
		"backends of GPUs": {before, head + "  - {name: a, nodeSelector: {tier: a}, gpuRules: [{index: [0, 1], " +
			"backends: " +
			"[driver, mps, reactive], minEnforcement: userspace}]}\n  - {name: default}\n", []string{"plan"},
			command.ExitOK, []string{
				"+ pools[a].gpuRules[0].backends: [driver, mps, reactive]",
				"+ pools[a].gpuRules[0].minEnforcement: userspace",
				"node n1 (pool a):",
				"  now    GPU 1: backends of profile and pool -> [driver, mps, reactive], minEnforcement of the pool " +
					"-> userspace",
				"  waits  GPU 0: backends of profile and pool -> [driver, mps, reactive], minEnforcement of the pool " +
					"-> userspace; for ns/train, grant k-2",
			}, nil},
		"shares that nothing enforces": {before, before, []string{"plan"}, command.ExitOK, []string{
			"node n2 (pool a): no GPU changes\n  shares GPU 0: rejected: no backend is known to enforce them " +
				"(driver: too old); set minEnforcement: none on the pool",
		}, nil},
		"shares that nothing enforces, as json": {before, before, []string{"plan", "-o", "json"}, command.ExitOK,
			[]string{`"indexes": [`, `"reason": "no backend is known to enforce them`}, nil},
		"shares that nothing enforces, allowed": {before,
			head + "  - {name: a, nodeSelector: {tier: a}, minEnforcement: none}\n  - {name: default}\n",
			[]string{"plan"}, command.ExitOK, []string{"node n2"}, []string{"  shares"}},
		"shares below what is required": {before,
			head + "  - {name: a, nodeSelector: {tier: a}, minEnforcement: userspace}\n  - {name: default}\n",
			[]string{"plan"}, command.ExitOK, []string{
				"  shares GPU 0: rejected: their level is none, and userspace is required (driver: too old)",
			}, nil},
		"shares that other backends may enforce": {before,
			head + "  - {name: a, nodeSelector: {tier: a}, backends: [driver, reactive]}\n  - {name: default}\n",
			[]string{"plan"}, command.ExitOK, []string{"node n2"}, []string{"  shares"}},
		"no shares": {before, head +
			"  - {name: a, nodeSelector: {tier: a}, mode: whole}\n  - {name: default}\n", []string{"plan"},
			command.ExitOK, []string{"node n2"}, []string{"  shares"}},
		"backends by diff": {before, head + "  - {name: a, nodeSelector: {tier: a}, gpuRules: [{index: [1], " +
			"backends: " +
			"[driver, libkerf]}]}\n  - {name: default}\n", []string{"diff"}, exitDiffers,
			[]string{"+ pools[a].gpuRules[0].backends: [driver, libkerf]"}, nil},
		"another pool": {before, head + "  - {name: b, nodeSelector: {tier: a}}\n  - {name: default}\n",
			[]string{"plan"}, command.ExitOK, []string{
				"node n1 (pool a -> b): no GPU changes", `node n2: would not take it: its agent says pool "a"`,
			}, nil},
		"no pool for it": {before, head + "  - {name: a, nodeSelector: {tier: b}}\n", []string{"plan"}, command.ExitOK,
			[]string{"node n1: would not take it: no pool"}, nil},
		"json": {before, before, []string{"plan", "-o", "json"}, command.ExitOK,
			[]string{`"differences": []`, `"node": "n1"`}, nil},
		"no document": {"", before, []string{"plan"}, command.ExitOK,
			[]string{"note: there is no configmap", "+ pools[a].name: a"}, nil},
		"diff": {before, head + "  - {name: a, nodeSelector: {tier: a}, onOverCap: kill}\n  - {name: " +
			"default}\n", []string{"diff"}, exitDiffers, []string{"+ pools[a].onOverCap: kill", "differ in 1 fields"},
			nil},
		"no difference": {before, "# other words\n" + before, []string{"diff"}, command.ExitOK, nil, []string{"pools"}},
		"rules": {
			before + "  profiles: [{name: s, memory: 1GiB}]\n",
			head + "  - {name: a, nodeSelector: {tier: a}, mode: shared, maxSharesPerGPU: 4, onOverCap: kill, " +
				"onUnmanagedProcess: kill, " +
				"idle: {timeout: 2h, action: evict}, minEnforcement: driver}\n  - {name: default}\n  profiles: " +
				"[{name: s, " +
				"memory: 2GiB, onOverCap: evict}]\n",
			[]string{"plan"}, command.ExitOK, []string{
				"  new    GPU 0: mode auto -> shared, maxSharesPerGPU without bound -> 4; " +
					"ns/train, grant k-2 keep what they have",
				"  new    GPU 1: mode auto -> shared, maxSharesPerGPU without bound -> 4\n",
				"  rule   onOverCap not said -> kill (at once, for ns/train, grant k-2 as well)",
				"  rule   onUnmanagedProcess not said -> kill (at once, ",
				"  rule   idle.timeout not said -> 2h0m0s (at once, ",
				"  rule   minEnforcement not said -> driver (new grants; ns/train, grant k-2 keep what they have)",
				"  rule   profiles[s].memory 1GiB -> 2GiB (new grants; ns/train keeps what it has)",
				"  rule   profiles[s].onOverCap not said -> evict (at once, for ns/train as well)",
			}, []string{"rule   mode"},
		},
		"MIG layouts": {before, head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 300, migLayouts: " +
			"[{migEnabled: " +
			"true, instances: {1g.10gb: 7}}]}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{
			"  now    GPU 1: powerLimitWatts as it is -> 300W, mig as pods request -> {1g.10gb: 7}",
			"  waits  GPU 0: powerLimitWatts as it is -> 300W, mig as pods request -> {1g.10gb: 7}; for ns/train, " +
				"grant k-2",
		}, nil},
		"GPUs that no node has": {before, head + "  - {name: a, nodeSelector: {tier: a}, gpuRules: [{index: [1, 9], " +
			"maxSharesPerGPU: 2}], migLayouts: [{index: [8], migEnabled: true}]}\n  - {name: default, gpuRules: " +
			"[{index: [7], excluded: " +
			"true}]}\n", []string{"plan"}, command.ExitOK, []string{
			"note: pools[a].gpuRules[0].index: 9 means no GPU that the pool's nodes report",
			"note: pools[a].migLayouts[0].index: 8 means no GPU that the pool's nodes report",
		}, []string{"index: 1 means", "pools[default].gpuRules[0].index: 7"}},
		"diff as json": {before, head + "  - {name: a, nodeSelector: {tier: a}, onOverCap: kill}\n  - {name: " +
			"default}\n",
			[]string{"diff", "-o", "json"}, exitDiffers, []string{`"path": "pools[a].onOverCap"`,
				`"otherApplied": []`},
			[]string{`"nodes"`}},
		"an error": {before, before + "  colour: red\n", []string{"plan"}, command.ExitFailure,
			[]string{"new.yaml: line 7: spec.colour is not a known field"}, nil},
		"an error of diff": {before, before + "  colour: red\n", []string{"diff"}, exitTrouble,
			[]string{"new.yaml: line 7: spec.colour is not a known field"}, nil},
		"a wrong form": {before, before, []string{"plan", "-o", "csv"}, command.ExitUsage,
			[]string{"is not a form of output"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"kubeconfig": planned(t, tt.before, ""), "new.yaml": tt.after}
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

// The plan compares with the applied config: the last known good one, the built-in one, or none.
func TestConfigPlanFromInForce(t *testing.T) {
	const head = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n"
	text := head + "  - {name: a, nodeSelector: {tier: a}}\n"
	good := head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 200, onOverCap: warn, gpuRules: [{index: " +
		"[7], " +
		"excluded: true}]}\n"
	quoted, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	// GPU 0 waits for its settings: it has 100 W still. GPU 7 is left to others.
	lastGood := `"config":{"sha256":"5555555555556666","errors":["line 7: wrong"],"lastKnownGood":` + string(quoted) +
		`,
		"pending":[{"gpu":"GPU-0","current":{"powerLimitWatts":"100W"}}],"excluded":[{"gpu":"GPU-7","index":7}]},`
	next := head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 300, onOverCap: kill}\n"
	for name, tt := range map[string]struct {
		configMap, applied string
		args               []string
		code               int
		want, not          []string
	}{
		"the last good one": {text + "  colour: red\n", lastGood, []string{"plan"}, command.ExitOK, []string{
			"has errors and no node applies it:\n  sharing.yaml: line 6: spec.colour is not a known field",
			"applied on n1: the last known good config, sha256 555555555555, not the ConfigMap's text; against it",
			"~ pools[a].onOverCap: warn -> kill", "~ pools[a].powerLimitWatts: 200 -> 300",
			"node n1 (pool a), from its last known good config 555555555555, since it rejected the ConfigMap's:",
			"  now    GPU 1: powerLimitWatts 200W -> 300W", "  now    GPU 7: excluded true -> false",
			"  waits  GPU 0: powerLimitWatts 100W -> 300W; for ns/train, grant k-2",
			"  rule   onOverCap warn -> kill (at once",
			"node n2: cannot be planned: the config that it applies, sha256 ",
		}, []string{"has no differences from the cluster"}},
		"its differences": {text + "  colour: red\n", lastGood, []string{"diff"}, exitDiffers,
			[]string{"against it\n", "~ pools[a].powerLimitWatts: 200 -> 300", "differ in 4 fields"}, nil},
		"as json": {text + "  colour: red\n", lastGood, []string{"plan", "-o", "json"}, command.ExitOK, []string{
			`"applied": "last good"`, `"sha256": "5555555555556666"`, `"line 7: wrong"`, `"configMapErrors": [`,
			`"when": "at once"`,
		}, nil},
		"a valid text that it refused": {text, lastGood, []string{"diff"}, exitDiffers,
			[]string{"+ pools[a].powerLimitWatts: 300", "applied on n1: the last known good config"}, nil},
		"nothing yet": {text + "  colour: red\n", `"config":{"errors":["wrong"]},`, []string{"plan"},
			command.ExitOK, []string{"applied on n1: none, since no config was valid yet"}, nil},
		"the built-in one": {text, `"config":{"pending":[]},`, []string{"diff"}, exitDiffers,
			[]string{"applied on n1: the built-in default"}, nil},
		"one that is not known": {text, `"config":{"sha256":"7777777777778888"},`, []string{"plan"}, command.ExitOK,
			[]string{
				"applied on n1: sha256 777777777777, which is not the ConfigMap's text",
				"node n1 (pool a), from the ConfigMap's text, though the node applies sha256 777777777777:",
			}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"kubeconfig": planned(t, tt.configMap, tt.applied), "new.yaml": next}
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
