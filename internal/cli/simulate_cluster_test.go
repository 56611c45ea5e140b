// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded is a small cluster as an API server tells of it: three nodes of two GPUs, seven pods that run and one that waits.
func recorded() map[string][]string {
	lists := map[string][]string{}
	claims := map[string][]string{}
	claim := func(node, uid string, gpu, gib int) {
		claims[node] = append(claims[node], fmt.Sprintf(`{"id":"c-%s","podUID":%q,"container":"main","fragments":[{"gpu":"GPU-%s-%d","memoryBytes":%d,"percent":0}]}`, uid, uid, node, gpu, gib<<30))
	}
	pod := func(name, owner, node string, gib int) {
		lists["/api/v1/pods"] = append(lists["/api/v1/pods"], fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"team","uid":"uid-%s","ownerReferences":[{"kind":"ReplicaSet","name":%q,"controller":true}]},
			"spec":{"nodeName":%q,"containers":[{"name":"main","resources":{"requests":{"cpu":"4","memory":"16Gi"},"limits":{"kerf.dev/gpu-memory-gib":"%d"}}}]},"status":{"phase":"Running"}}`, name, name, owner, node, gib))
	}
	for i, p := range []struct {
		node     string
		gpu, gib int
	}{{"gpu-1", 0, 30}, {"gpu-1", 0, 30}, {"gpu-1", 1, 60}, {"gpu-2", 0, 30}, {"gpu-2", 1, 60}, {"gpu-3", 0, 60}, {"gpu-3", 1, 30}} {
		name, owner := fmt.Sprintf("chat-%d", i), "chat"
		if p.gib == 60 {
			name, owner = fmt.Sprintf("embed-%d", i), "embed"
		}
		pod(name, owner, p.node, p.gib)
		claim(p.node, "uid-"+name, p.gpu, p.gib)
	}
	pod("chat-9", "chat", "", 30)
	for _, node := range []string{"gpu-1", "gpu-2", "gpu-3"} {
		lists["/api/v1/nodes"] = append(lists["/api/v1/nodes"], fmt.Sprintf(`{"metadata":{"name":%q},"status":{"allocatable":{"cpu":"64","memory":"512Gi"},"conditions":[{"type":"Ready","status":"True"}]}}`, node))
		var gpus []string
		for i := range 2 {
			gpus = append(gpus, fmt.Sprintf(`{"uuid":"GPU-%s-%d","index":%d,"model":"NVIDIA H100 80GB HBM3","usableBytes":%d,"health":"healthy","levels":["driver"]}`, node, i, i, 80<<30))
		}
		lists["/apis/kerf.dev/v1alpha1/gpunodes"] = append(lists["/apis/kerf.dev/v1alpha1/gpunodes"],
			fmt.Sprintf(`{"metadata":{"name":%q},"status":{"ready":true,"gpus":[%s],"claims":[%s]}}`, node, strings.Join(gpus, ","), strings.Join(claims[node], ",")))
	}
	return lists
}

func TestSimulateFromCluster(t *testing.T) {
	lists := recorded()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items, ok := lists[r.URL.Path]
		if !ok || r.Method != http.MethodGet {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
	}))
	defer server.Close()
	home := t.TempDir()
	config, asked := filepath.Join(home, ".kube", "config"), filepath.Join(home, "new.yaml")
	if err := os.Mkdir(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		config: fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- {name: x, context: {cluster: c}}\ncurrent-context: x\n", server.URL),
		asked:  "pods:\n- {name: wide, count: 2, gpus: 2, cores: 8}\n- {name: small, count: 3, gpuMemory: 20Gi, cores: 1}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call := func(env string, args ...string) (string, string, int) {
		out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
		a := &app{out: out, errOut: errOut, getenv: func(name string) string {
			if name == env {
				return map[string]string{"HOME": home, "KUBECONFIG": config + ":/nowhere"}[name]
			}
			return ""
		}}
		code, _ := a.main(append([]string{"simulate", "--from-cluster"}, args...))
		return out.String(), errOut.String(), code
	}
	for name, tt := range map[string]struct {
		env  string
		args []string
		want []string
	}{
		"what waits":     {"HOME", nil, []string{"kerf: 62.50 % allocated before, 68.75 % with", "waiting: team/ReplicaSet chat  1      1"}},
		"new pods":       {"KUBECONFIG", []string{"--pods", asked}, []string{"wide                           2      0    3 nodes: too little free on any one GPU (gpu-1: 0 GPUs have 100 % free, 2 asked)", "small                          3      3", "all fit with 2 more nodes of NVIDIA H100 80GB HBM3 (4 GPUs)"}},
		"a node less":    {"HOME", []string{"--gone", "gpu-3"}, []string{"moved: team/ReplicaSet chat    1      1", "moved: team/ReplicaSet embed   1      0    2 nodes: too little free"}},
		"MIG":            {"HOME", []string{"--mig", "gpu-1"}, []string{"moved: team/ReplicaSet embed   1      1", "moved: team/ReplicaSet chat    2      2"}},
		"two policies":   {"", []string{"--kubeconfig", config, "--policy", "kerf,nvidia-whole"}, []string{"kerf: 62.50", "nvidia-whole: 62.50", "3 nodes: too little free on any one GPU"}},
		"filled":         {"HOME", []string{"--inflate", "1.3", "--seeds", "1-2"}, []string{"FIRST FAILURE", "kerf    2"}},
		"coming, going":  {"HOME", []string{"--churn", "0.9"}, []string{"REJECTED GPU", "0.90"}},
		"other template": {"HOME", []string{"--typical", "online"}, []string{"waiting: team/ReplicaSet chat  1      1"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := call(tt.env, tt.args...)
			for _, want := range tt.want {
				if code != exitOK || !strings.Contains(out, want) {
					t.Errorf("status %d, no %q in:\n%s%s", code, want, out, errOut)
				}
			}
		})
	}
	var fits []struct {
		Policy string
		Pods   []struct{ Type string }
	}
	if out, _, code := call("HOME", "-o", "json"); code != exitOK || json.Unmarshal([]byte(out), &fits) != nil || len(fits) != 1 || len(fits[0].Pods) != 1 {
		t.Errorf("JSON: status %d: %s", code, out)
	}
	for _, wrong := range [][]string{
		{"--workload", asked}, {"--plot", "x.svg"}, {"-o", "csv"}, {"--pods", asked, "--inflate", "1"}, {"--pods", asked, "--churn", "1"},
	} {
		if _, _, code := call("HOME", wrong...); code != exitUsage {
			t.Errorf("%v: status %d", wrong, code)
		}
	}
	lists["/api/v1/pods"] = append(lists["/api/v1/pods"], `{"metadata":{"name":"odd","namespace":"team","uid":"o"},"spec":{"containers":[{"name":"c","resources":{"limits":{"kerf.dev/gpu":"1","kerf.dev/gpu-percent":"5"}}}]}}`)
	if out, errOut, code := call("HOME"); code != exitOK || !strings.Contains(errOut, "left out: pod team/odd") || strings.Contains(out, "odd") {
		t.Errorf("a pod that cannot be read: status %d: %s%s", code, out, errOut)
	}
	delete(lists, "/apis/kerf.dev/v1alpha1/gpunodes")
	if _, errOut, code := call("HOME"); code != exitFailure || !strings.Contains(errOut, "list gpunodes") {
		t.Errorf("no GPUNodes: status %d: %s", code, errOut)
	}
	if _, _, code := call(""); code != exitFailure {
		t.Errorf("no kubeconfig: status %d", code)
	}
}
