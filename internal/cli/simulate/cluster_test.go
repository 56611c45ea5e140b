// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

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

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestSimulateFromCluster(t *testing.T) {
	lists := clitest.Recorded()
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
		config: fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: "+
			"%q}}\ncontexts:\n- {name: x, context: {cluster: c}}\ncurrent-context: x\n", server.URL),
		asked: "pods:\n- {name: wide, count: 2, gpus: 2, cores: 8}\n- {name: small, count: 3, gpuMemory: 20Gi, " +
			"cores: 1}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call := func(env string, args ...string) (string, string, int) {
		out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
		a := &command.App{Out: out, ErrOut: errOut, Getenv: func(name string) string {
			if name == env {
				return map[string]string{"HOME": home, "KUBECONFIG": config + ":/nowhere"}[name]
			}
			return ""
		}}
		code, _ := a.Execute(append([]string{"simulate", "--from-cluster"}, args...), Commands)
		return out.String(), errOut.String(), code
	}
	for name, tt := range map[string]struct {
		env  string
		args []string
		want []string
	}{
		"what waits": {"HOME", nil, []string{"kerf: 62.50 % allocated before, 68.75 % with",
			"waiting: team/ReplicaSet chat  1      1"}},
		"new pods": {"KUBECONFIG", []string{"--pods", asked},
			[]string{"wide                           2      0    3 nodes: too little free on any one GPU (gpu-1: 0 " +
				"GPUs have 100 % free, 2 requested)", "small                          3      3",
				"all fit with 2 more nodes of NVIDIA H100 80GB HBM3 (4 GPUs)"}},
		"a node less": {"HOME", []string{"--remove-nodes", "gpu-3"}, []string{"moved: team/ReplicaSet chat    1      1",
			"moved: team/ReplicaSet embed   1      0    2 nodes: too little free"}},
		"MIG": {"HOME", []string{"--mig", "gpu-1"}, []string{"moved: team/ReplicaSet embed   1      1",
			"moved: team/ReplicaSet chat    2      2"}},
		"kubeconfig": {"", []string{"--kubeconfig", config},
			[]string{"kerf: 62.50 % allocated before, 68.75 % with"}},
		"filled": {"HOME", []string{"--load", "1.3", "--seeds", "1-2"},
			[]string{"FIRST FAILURE", "kerf    2"}},
		"coming, going": {"HOME", []string{"--churn", "0.9"}, []string{"REJECTED GPU", "0.90"}},
		"other template": {"HOME", []string{"--workload-model", "online"},
			[]string{"waiting: team/ReplicaSet chat  1      1"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := call(tt.env, tt.args...)
			for _, want := range tt.want {
				if code != command.ExitOK || !strings.Contains(out, want) {
					t.Errorf("status %d, no %q in:\n%s%s", code, want, out, errOut)
				}
			}
		})
	}
	var fits []struct {
		Policy string
		Pods   []struct{ Type string }
	}
	if out, _, code := call("HOME", "-o", "json"); code != command.ExitOK ||
		json.Unmarshal([]byte(out), &fits) != nil || len(fits) != 1 || len(fits[0].Pods) != 1 {
		t.Errorf("JSON: status %d: %s", code, out)
	}
	for _, wrong := range [][]string{
		{"--workload", asked}, {"-o", "csv"}, {"--pods", asked, "--load", "1"}, {"--pods", asked, "--churn", "1"},
	} {
		if _, _, code := call("HOME", wrong...); code != command.ExitUsage {
			t.Errorf("%v: status %d", wrong, code)
		}
	}
	lists["/api/v1/pods"] = append(lists["/api/v1/pods"],
		`{"metadata":{"name":"odd","namespace":"team","uid":"o"},"spec":{"containers":[{"name":"c","resources":{"limits":{"kerf.dev/gpu":"1","kerf.dev/gpu-percent":"5"}}}]}}`)
	if out, errOut, code := call("HOME"); code != command.ExitOK ||
		!strings.Contains(errOut, "left out: pod team/odd") || strings.Contains(out, "odd") {
		t.Errorf("a pod that cannot be read: status %d: %s%s", code, out, errOut)
	}
	delete(lists, "/apis/kerf.dev/v1alpha1/gpunodes")
	if _, errOut, code := call("HOME"); code != command.ExitFailure || !strings.Contains(errOut, "list gpunodes") {
		t.Errorf("no GPUNodes: status %d: %s", code, errOut)
	}
	if _, _, code := call(""); code != command.ExitFailure {
		t.Errorf("no kubeconfig: status %d", code)
	}
}
