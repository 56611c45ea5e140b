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

// planned is an API server of two nodes: GPU 0 of the first is used, and the agent of the second was given labels of its own. Both have
// the ConfigMap's document in force where nothing else is said of the first.
func planned(t *testing.T, document, inForce string) (kubeconfig string) {
	t.Helper()
	same := ""
	if document != "" {
		same = fmt.Sprintf(`"config":{"sha256":%q},`, config.Hash([]config.File{{Data: []byte(document)}}))
	}
	if inForce == "" {
		inForce = same
	}
	lists := map[string]string{
		"/api/v1/nodes": `{"metadata":{"name":"n1","labels":{"tier":"a"}}},{"metadata":{"name":"n2"}},{"metadata":{"name":"n3"}}`,
		"/api/v1/pods":  "",
		"/apis/kerf.dev/v1alpha1/gpunodes": `{"metadata":{"name":"n1"},"status":{` + inForce + `"pool":"a","gpus":[{"uuid":"GPU-0","index":0,"migState":{"units":8}},{"uuid":"GPU-1","index":1,"migState":{"units":8}}],
			"claims":[{"id":"k-1","podUID":"u","namespace":"ns","pod":"train","profile":"s","fragments":[{"gpu":"GPU-0"}]},{"id":"k-2","fragments":[{"gpu":"GPU-0"}]}]}},
			{"metadata":{"name":"n2"},"status":{` + same + `"pool":"a","gpus":[{"uuid":"GPU-2","index":0,"levels":["exclusive","none"],"levelReason":"driver: too old"}]}}`,
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
		"the same": {before, before, []string{"plan"}, command.ExitOK, []string{"says what the cluster's says", "node n1 (pool a): no GPU changes"}, []string{"n3"}},
		"settings": {before, head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 300}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{
			"+ pools[a].powerLimitWatts: 300", "node n1 (pool a):", "  now    GPU 1: powerLimitWatts as it is -> 300W",
			"  waits  GPU 0: powerLimitWatts as it is -> 300W; for ns/train, grant k-2", "node n2 (pool a):\n  now    GPU 0: powerLimitWatts",
		}, nil},
		"backends of GPUs": {before, head + "  - {name: a, nodeSelector: {tier: a}, gpus: [{index: [0, 1], backends: [driver, mps, reactive], minEnforcement: client}]}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{
			"+ pools[a].gpus[0].backends: [driver, mps, reactive]", "+ pools[a].gpus[0].minEnforcement: client", "node n1 (pool a):",
			"  now    GPU 1: backends of profile and pool -> [driver, mps, reactive], minEnforcement of the pool -> client",
			"  waits  GPU 0: backends of profile and pool -> [driver, mps, reactive], minEnforcement of the pool -> client; for ns/train, grant k-2",
		}, nil},
		"shares that nothing enforces": {before, before, []string{"plan"}, command.ExitOK, []string{
			"node n2 (pool a): no GPU changes\n  shares GPU 0: rejected: no backend is known to enforce them (driver: too old); set minEnforcement: none on the pool",
		}, nil},
		"shares that nothing enforces, as json": {before, before, []string{"plan", "-o", "json"}, command.ExitOK, []string{`"indexes": [`, `"why": "no backend is known to enforce them`}, nil},
		"shares that nothing enforces, allowed": {before, head + "  - {name: a, nodeSelector: {tier: a}, minEnforcement: none}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{"node n2"}, []string{"  shares"}},
		"shares below what is demanded": {before, head + "  - {name: a, nodeSelector: {tier: a}, minEnforcement: client}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{
			"  shares GPU 0: rejected: their level is none, and client is demanded (driver: too old)",
		}, nil},
		"shares that other backends may enforce": {before, head + "  - {name: a, nodeSelector: {tier: a}, backends: [driver, reactive]}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{"node n2"}, []string{"  shares"}},
		"no shares":                              {before, head + "  - {name: a, nodeSelector: {tier: a}, mode: whole}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{"node n2"}, []string{"  shares"}},
		"backends by diff":                       {before, head + "  - {name: a, nodeSelector: {tier: a}, gpus: [{index: [1], backends: [driver, libkerf]}]}\n  - {name: default}\n", []string{"diff"}, exitDiffers, []string{"+ pools[a].gpus[0].backends: [driver, libkerf]"}, nil},
		"another pool": {before, head + "  - {name: b, nodeSelector: {tier: a}}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{
			"node n1 (pool a -> b): no GPU changes", `node n2: would not take it: its agent says pool "a"`,
		}, nil},
		"no pool for it": {before, head + "  - {name: a, nodeSelector: {tier: b}}\n", []string{"plan"}, command.ExitOK, []string{"node n1: would not take it: no pool"}, nil},
		"json":           {before, before, []string{"plan", "-o", "json"}, command.ExitOK, []string{`"differences": []`, `"node": "n1"`}, nil},
		"no document":    {"", before, []string{"plan"}, command.ExitOK, []string{"note: there is no configmap", "+ pools[a].name: a"}, nil},
		"diff":           {before, head + "  - {name: a, nodeSelector: {tier: a}, overCap: kill}\n  - {name: default}\n", []string{"diff"}, exitDiffers, []string{"+ pools[a].overCap: kill", "differ in 1 fields"}, nil},
		"no difference":  {before, "# other words\n" + before, []string{"diff"}, command.ExitOK, nil, []string{"pools"}},
		"rules": {
			before + "  profiles: [{name: s, memory: 1GiB}]\n",
			head + "  - {name: a, nodeSelector: {tier: a}, mode: shared, sharers: 4, overCap: kill, strangers: kill, idle: {after: 2h, do: evict}, minEnforcement: driver}\n  - {name: default}\n  profiles: [{name: s, memory: 2GiB, overCap: evict}]\n",
			[]string{"plan"}, command.ExitOK, []string{
				"  new    GPU 0: mode auto -> shared, sharers without bound -> 4; ns/train, grant k-2 keep what they have", "  new    GPU 1: mode auto -> shared, sharers without bound -> 4\n",
				"  rule   overCap not said -> kill (at once, for ns/train, grant k-2 as well)", "  rule   strangers not said -> kill (at once, ", "  rule   idle.after not said -> 2h0m0s (at once, ",
				"  rule   minEnforcement not said -> driver (new claims; ns/train, grant k-2 keep what they have)",
				"  rule   profiles[s].memory 1GiB -> 2GiB (new claims; ns/train keeps what it has)", "  rule   profiles[s].overCap not said -> evict (at once, for ns/train as well)",
			}, []string{"rule   mode"},
		},
		"MIG layouts": {before, head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 300, mig: [{enabled: true, instances: {1g.10gb: 7}}]}\n  - {name: default}\n", []string{"plan"}, command.ExitOK, []string{
			"  now    GPU 1: powerLimitWatts as it is -> 300W, mig as demand asks -> {1g.10gb: 7}",
			"  waits  GPU 0: powerLimitWatts as it is -> 300W, mig as demand asks -> {1g.10gb: 7}; for ns/train, grant k-2",
		}, nil},
		"GPUs that no node has": {before, head + "  - {name: a, nodeSelector: {tier: a}, gpus: [{index: [1, 9], sharers: 2}], mig: [{gpus: [8], enabled: true}]}\n  - {name: default, gpus: [{index: [7], exclude: true}]}\n", []string{"plan"}, command.ExitOK, []string{
			"note: pools[a].gpus[0].index: 9 means no GPU that the pool's nodes report", "note: pools[a].mig[0].gpus: 8 means no GPU that the pool's nodes report",
		}, []string{"index: 1 means", "pools[default].gpus[0].index: 7"}},
		"diff as json": {before, head + "  - {name: a, nodeSelector: {tier: a}, overCap: kill}\n  - {name: default}\n", []string{"diff", "-o", "json"}, exitDiffers, []string{`"path": "pools[a].overCap"`, `"other_in_force": []`}, []string{`"nodes"`}},
		"a mistake":    {before, before + "  colour: red\n", []string{"plan"}, command.ExitFailure, []string{"new.yaml: line 7: spec.colour is not a known field"}, nil},
		"a wrong form": {before, before, []string{"plan", "-o", "csv"}, command.ExitUsage, []string{"is not a form of output"}, nil},
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

// What a node has in force counts, whatever the ConfigMap says: its last good document, the built-in one, none.
func TestConfigPlanFromInForce(t *testing.T) {
	const head = "apiVersion: kerf.dev/v1alpha1\nkind: SharingConfig\nspec:\n  pools:\n"
	text := head + "  - {name: a, nodeSelector: {tier: a}}\n"
	good := head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 200, overCap: warn, gpus: [{index: [7], exclude: true}]}\n"
	quoted, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	// GPU 0 waits for its settings: it has 100 W still. GPU 7 is left to others.
	lastGood := `"config":{"sha256":"5555555555556666","mistakes":["line 7: wrong"],"document":` + string(quoted) + `,
		"waiting":[{"gpu":"GPU-0","has":{"powerLimitWatts":"100W"}}],"excluded":[{"gpu":"GPU-7","index":7}]},`
	next := head + "  - {name: a, nodeSelector: {tier: a}, powerLimitWatts: 300, overCap: kill}\n"
	for name, tt := range map[string]struct {
		configMap, inForce string
		args               []string
		code               int
		want, not          []string
	}{
		"the last good one": {text + "  colour: red\n", lastGood, []string{"plan"}, command.ExitOK, []string{
			"has mistakes and is in force nowhere:\n  sharing.yaml: line 6: spec.colour is not a known field",
			"in force on n1: the last good document, sha256 555555555555, not the ConfigMap's text; against it", "~ pools[a].overCap: warn -> kill", "~ pools[a].powerLimitWatts: 200 -> 300",
			"node n1 (pool a), from its last good document 555555555555, since it refused the ConfigMap's:",
			"  now    GPU 1: powerLimitWatts 200W -> 300W", "  now    GPU 7: exclude true -> false", "  waits  GPU 0: powerLimitWatts 100W -> 300W; for ns/train, grant k-2",
			"  rule   overCap warn -> kill (at once", "node n2: cannot be planned: the document that it has in force, sha256 ",
		}, []string{"says what the cluster's says"}},
		"its differences": {text + "  colour: red\n", lastGood, []string{"diff"}, exitDiffers, []string{"against it\n", "~ pools[a].powerLimitWatts: 200 -> 300", "differ in 4 fields"}, nil},
		"as json": {text + "  colour: red\n", lastGood, []string{"plan", "-o", "json"}, command.ExitOK, []string{
			`"in_force": "last good"`, `"sha256": "5555555555556666"`, `"line 7: wrong"`, `"configmap_mistakes": [`, `"when": "at once"`,
		}, nil},
		"a valid text that it refused": {text, lastGood, []string{"diff"}, exitDiffers, []string{"+ pools[a].powerLimitWatts: 300", "in force on n1: the last good document"}, nil},
		"nothing yet":                  {text + "  colour: red\n", `"config":{"mistakes":["wrong"]},`, []string{"plan"}, command.ExitOK, []string{"in force on n1: nothing, since no document was valid yet"}, nil},
		"the built-in one":             {text, `"config":{"waiting":[]},`, []string{"diff"}, exitDiffers, []string{"in force on n1: the built-in default"}, nil},
		"one that is not known": {text, `"config":{"sha256":"7777777777778888"},`, []string{"plan"}, command.ExitOK, []string{
			"in force on n1: sha256 777777777777, which is not the ConfigMap's text", "node n1 (pool a), from the ConfigMap's text, though it has sha256 777777777777 in force:",
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"kubeconfig": planned(t, tt.configMap, tt.inForce), "new.yaml": next}
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
