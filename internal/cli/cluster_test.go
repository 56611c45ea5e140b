// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeCluster is an API server in miniature: lists by path, and answers to what is written.
type fakeCluster struct {
	mu    sync.Mutex
	lists map[string][]string
	// on answers what is no list; it is called with mu held.
	on func(w http.ResponseWriter, method, path, body string) bool
	// wrote has each request that is no read.
	wrote  []string
	config string
}

func startCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{lists: recorded()}
	for i, n := range f.lists[gpuNodesPath] {
		f.lists[gpuNodesPath][i] = regexp.MustCompile(`"podUID":"uid-([^"]+)"`).ReplaceAllString(n, `"podUID":"uid-$1","namespace":"team","pod":"$1"`)
	}
	for _, node := range []string{"gpu-1", "gpu-2"} {
		f.lists["/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"] = append(f.lists["/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"],
			fmt.Sprintf(`{"metadata":{"name":"kerf-node-%s"},"spec":{"renewTime":%q,"leaseDurationSeconds":40}}`, node, time.Now().UTC().Add(map[string]time.Duration{"gpu-2": -time.Hour}[node]).Format("2006-01-02T15:04:05.000000Z07:00")))
	}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	f.config = filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- {name: x, context: {cluster: c, namespace: team}}\n- {name: other, context: {cluster: c}}\ncurrent-context: x\n", server.URL)
	if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeCluster) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		f.wrote = append(f.wrote, r.Method+" "+r.URL.Path+" "+string(body))
	}
	if f.on != nil && f.on(w, r.Method, r.URL.Path, string(body)) {
		return
	}
	if items, ok := f.lists[r.URL.Path]; ok && r.Method == http.MethodGet {
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

// call runs kubectl-kerf against it.
func (f *fakeCluster) call(args ...string) (out, errOut string, code int) {
	p := newInProcess(map[string]string{"KUBECONFIG": f.config})
	p.app.plugin = true
	code, _ = p.app.main(args)
	return p.out.String(), p.errOut.String(), code
}

func (f *fakeCluster) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.wrote...)
}

func TestStatusOfACluster(t *testing.T) {
	f := startCluster(t)
	out, errOut, code := f.call("status")
	if code != exitOK || errOut != "" {
		t.Fatalf("status %d: %s", code, errOut)
	}
	for _, want := range []string{"gpu-2  stale", "gpu-3/1", "team/chat-0/main", "30GiB"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b[") {
		t.Error("colours where no terminal is")
	}
	var doc struct {
		Nodes []struct {
			Name   string
			Stale  bool
			Claims []struct{ Pod string }
		}
	}
	out, _, _ = f.call("status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Nodes) != 3 || doc.Nodes[0].Stale || !doc.Nodes[1].Stale {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, code = f.call("status", "-o", "yaml", "-n", "nobody"); code != exitOK || !strings.Contains(out, "name: \"gpu-1\"") || strings.Contains(out, "chat-0") {
		t.Errorf("yaml of a namespace: %s", out)
	}
	if _, errOut, code = f.call("status", "--wait", "ready"); code != exitUsage || !strings.Contains(errOut, "kubectl wait") {
		t.Errorf("--wait: status %d: %s", code, errOut)
	}
	delete(f.lists, gpuNodesPath)
	if _, errOut, code = f.call("status"); code != exitFailure || !strings.Contains(errOut, "kubectl kerf status: list gpunodes") || !strings.Contains(errOut, "not installed in this cluster") {
		t.Errorf("no Kerf: status %d: %s", code, errOut)
	}
}

func TestTopOfACluster(t *testing.T) {
	f := startCluster(t)
	out, errOut, code := f.call("top", "--once")
	if code != exitOK || !strings.Contains(out, "team/chat-0/main") || !strings.Contains(out, "not known: ") {
		t.Fatalf("without monitors: status %d: %s%s", code, out, errOut)
	}
	f.lists["/api/v1/namespaces/kerf-system/pods"] = []string{`{"metadata":{"name":"kerf-monitor-a"},"spec":{"nodeName":"gpu-1"}}`}
	f.on = func(w http.ResponseWriter, _, path, _ string) bool {
		if path != "/api/v1/namespaces/kerf-system/pods/kerf-monitor-a:9446/proxy/metrics" {
			return false
		}
		_, _ = io.WriteString(w, `# TYPE kerf_use_memory_bytes gauge
kerf_use_memory_bytes{container="main",grant="x",index="0",known="process",namespace="team",owner="grant",pod="chat-0",uuid="GPU-gpu-1-0"} 2.147483648e+09
kerf_use_memory_bytes{container="",grant="",index="1",known="process",namespace="",owner="stranger",pod="",uuid="GPU-gpu-1-1"} 1.073741824e+09
# TYPE kerf_use_sm_ratio gauge
kerf_use_sm_ratio{container="main",grant="x",index="0",known="process",namespace="team",owner="grant",pod="chat-0",uuid="GPU-gpu-1-0"} 0.25
`)
		return true
	}
	out, errOut, code = f.call("top", "--once")
	if code != exitOK || !strings.Contains(out, "2GiB") || !strings.Contains(out, "25%") || !strings.Contains(out, "(no grant's)") || strings.Contains(out, "not known") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	if out, _, _ = f.call("top", "--once", "-n", "nobody"); strings.Contains(out, "chat-0") {
		t.Errorf("of another namespace: %s", out)
	}
	if out, _, _ = f.call("top", "--once", "-o", "json"); !strings.Contains(out, `"used_bytes": 2147483648`) {
		t.Errorf("json: %s", out)
	}
	for _, wrong := range [][]string{{"--grant", "a"}, {"--sort", "idle"}, {"-o", "csv"}} {
		if _, _, code := f.call(append([]string{"top", "--once"}, wrong...)...); code != exitUsage {
			t.Errorf("%v: status %d", wrong, code)
		}
	}
}

func TestDoctorOfACluster(t *testing.T) {
	f := startCluster(t)
	out, errOut, code := f.call("doctor")
	if code != exitFailure || !strings.Contains(out, "gpu-1 serves pods") || !strings.Contains(out, "gpu-2 does not serve pods\n  why:  its kerf-agent was heard from last") || errOut == "" {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	f.lists["/api/v1/nodes"] = []string{`{"metadata":{"name":"gpu-1"},"status":{"allocatable":{"nvidia.com/gpu":"2"}}}`}
	if out, _, code = f.call("doctor", "-o", "yaml"); code != exitOK || !strings.Contains(out, "hands out 2 nvidia.com/gpu here") {
		t.Errorf("status %d: %s", code, out)
	}
}

// TestWhereACommandAsks is the rule by which a command asks this machine's agent or the cluster.
func TestWhereACommandAsks(t *testing.T) {
	f := startCluster(t)
	with, without := t.TempDir(), t.TempDir()
	write(t, with, "kerf.sock", "", 0o600)
	for name, tt := range map[string]struct {
		plugin bool
		env    map[string]string
		args   []string
		want   bool
	}{
		"no agent, no cluster":         {false, nil, []string{"--dir", without}, false},
		"kubectl":                      {true, nil, nil, true},
		"kubectl, and an agent's name": {true, nil, []string{"--dir", with}, false},
		"a kubeconfig is there":        {false, map[string]string{"KUBECONFIG": f.config}, nil, true},
		"a context":                    {false, map[string]string{"KUBECONFIG": f.config}, []string{"--context", "x"}, true},
		"a server":                     {false, nil, []string{"--server", "https://a"}, true},
		"an agent's name beside":       {false, map[string]string{"KUBECONFIG": f.config, "KERF_DIR": with}, nil, false},
		"a pod":                        {false, map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, nil, true},
	} {
		p := newInProcess(tt.env)
		p.app.plugin = tt.plugin
		root := p.app.root()
		status, _, err := root.Find([]string{"status"})
		if err != nil {
			t.Fatal(err)
		}
		if err := status.ParseFlags(tt.args); err != nil {
			t.Fatal(err)
		}
		if p.app.dir == defaultDir {
			p.app.dir = without
		}
		if got := p.app.remote(status); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	p := newInProcess(map[string]string{"KUBECONFIG": f.config})
	root := p.app.root()
	p.app.dir = with
	if p.app.remote(root) {
		t.Error("an agent is here, and the cluster is asked")
	}
}

func TestPluginName(t *testing.T) {
	f := startCluster(t)
	out, _, _ := f.call("status", "--help")
	if !strings.Contains(out, "kubectl kerf status [flags]") || !strings.Contains(out, "--context") || strings.Contains(out, "--client-key") {
		t.Errorf("help: %s", out)
	}
	if _, errOut, code := f.call("nothing"); code != exitUsage || !strings.Contains(errOut, "kubectl kerf: see kubectl kerf --help") {
		t.Errorf("status %d: %s", code, errOut)
	}
}

func TestCompletion(t *testing.T) {
	f := startCluster(t)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"GPUs of the cluster": {[]string{"drain", ""}, "gpu-1/0\tNVIDIA H100 80GB HBM3\n"},
		"no second GPU":       {[]string{"drain", "gpu-1/0", ""}, ":4\n"},
		"UUIDs":               {[]string{"run", "--gpu-uuid", ""}, "GPU-gpu-3-1\tNVIDIA"},
		"contexts":            {[]string{"status", "--context", ""}, "other\nx\n"},
		"forms":               {[]string{"status", "-o", ""}, "yaml\n"},
	} {
		out, _, code := f.call(append([]string{"__complete"}, tt.args...)...)
		if code != exitOK || !strings.Contains(out, tt.want) {
			t.Errorf("%s: status %d: %s", name, code, out)
		}
	}
	if out, _, code := f.call("completion", "kubectl"); code != exitOK || out != kubectlCompletion {
		t.Errorf("status %d: %s", code, out)
	}
	if out, _, code := f.call("completion", "bash"); code != exitOK || !strings.Contains(out, "__start_kerf") {
		t.Errorf("status %d: %.80s", code, out)
	}
}
