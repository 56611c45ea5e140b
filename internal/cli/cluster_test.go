// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestStatusOfACluster(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	out, errOut, code := f.Call("status")
	if code != command.ExitOK || errOut != "" {
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
			Grants []struct{ Pod string }
		}
	}
	out, _, _ = f.Call("status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Nodes) != 3 || doc.Nodes[0].Stale ||
		!doc.Nodes[1].Stale {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, code = f.Call("status", "-o", "yaml", "-n", "absent"); code != command.ExitOK ||
		!strings.Contains(out, "name: \"gpu-1\"") || strings.Contains(out, "chat-0") {
		t.Errorf("yaml of a namespace: %s", out)
	}
	if _, errOut, code = f.Call("status", "--wait", "ready"); code != command.ExitUsage ||
		!strings.Contains(errOut, "kubectl wait") {
		t.Errorf("--wait: status %d: %s", code, errOut)
	}
	delete(f.Lists, command.GPUNodesPath)
	if _, errOut, code = f.Call("status"); code != command.ExitFailure ||
		!strings.Contains(errOut, "kubectl kerf status: list gpunodes") ||
		!strings.Contains(errOut, "not installed in this cluster") {
		t.Errorf("no Kerf: status %d: %s", code, errOut)
	}
}

// TestClaimsOfACluster: wide and JSON forms of status and top name the claim and request of a grant.
func TestClaimsOfACluster(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	out, _, _ := f.Call("status", "-o", "json")
	var s struct {
		Nodes []struct {
			Claims map[string][]string
			Grants []struct {
				ID, Pod, PodUID string
				Shares          []struct{ GPU string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Nodes[0].Grants) < 2 || s.Nodes[0].Claims != nil {
		t.Fatalf("%v: %s", err, out)
	}
	g := s.Nodes[0].Grants[0]
	f.Lists["/apis/resource.k8s.io/v1/resourceclaims"] = []string{fmt.Sprintf(`{"metadata":{"name":"train-gpu-x7",
		"namespace":"team"},"status":{"reservedFor":[{"resource":"pods","name":"p","uid":%q}],"allocation":{"devices":{
		"results":[{"request":"main","driver":"gpu.kerf.dev","pool":"gpu-1","device":"%s-share"},
		{"request":"nic","driver":"nic.example.com","pool":"gpu-1","device":"%s-share"}]}}}}`, g.PodUID,
		strings.ToLower(g.Shares[0].GPU), strings.ToLower(g.Shares[0].GPU))}
	for _, args := range [][]string{{"status", "-o", "wide"}, {"top", "--once", "-o", "wide"}} {
		out, errOut, code := f.Call(args...)
		if code != command.ExitOK || !strings.Contains(out, "CLAIM") ||
			strings.Count(out, "train-gpu-x7/main") != 1 || strings.Contains(out, "nic") {
			t.Errorf("%q: status %d:\n%s%s", args, code, out, errOut)
		}
	}
	if out, _, _ = f.Call("status", "-o", "json"); json.Unmarshal([]byte(out), &s) != nil ||
		len(s.Nodes[0].Claims[g.ID]) != 1 || s.Nodes[0].Claims[g.ID][0] != "train-gpu-x7/main" {
		t.Errorf("json: %s", out)
	}
	if out, _, _ = f.Call("top", "--once", "-o", "json"); strings.Count(out, `"train-gpu-x7/main"`) != 1 {
		t.Errorf("json: %s", out)
	}
}

func TestTopOfACluster(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	out, errOut, code := f.Call("top", "--once")
	if code != command.ExitOK || !strings.Contains(out, "team/chat-0/main") || !strings.Contains(out, "not known: ") {
		t.Fatalf("without monitors: status %d: %s%s", code, out, errOut)
	}
	f.Lists["/api/v1/namespaces/kerf-system/pods"] = []string{
		`{"metadata":{"name":"kerf-monitor-a"},"spec":{"nodeName":"gpu-1"}}`}
	f.On = func(w http.ResponseWriter, _, path, _ string) bool {
		if path != "/api/v1/namespaces/kerf-system/pods/kerf-monitor-a:9446/proxy/metrics" {
			return false
		}
		_, _ = io.WriteString(w, `# TYPE kerf_usage_memory_bytes gauge
kerf_usage_memory_bytes{attribution="process",container="main",gpu="0",gpu_uuid="GPU-gpu-1-0",grant="x",namespace="team",owner="grant",pod="chat-0"} 2.147483648e+09
kerf_usage_memory_bytes{attribution="process",container="",gpu="1",gpu_uuid="GPU-gpu-1-1",grant="",namespace="",owner="unmanaged",pod=""} 1.073741824e+09
# TYPE kerf_usage_sm_ratio gauge
kerf_usage_sm_ratio{attribution="process",container="main",gpu="0",gpu_uuid="GPU-gpu-1-0",grant="x",namespace="team",owner="grant",pod="chat-0"} 0.25
`)
		return true
	}
	out, errOut, code = f.Call("top", "--once")
	if code != command.ExitOK || !strings.Contains(out, "2GiB") || !strings.Contains(out, "25%") ||
		!strings.Contains(out, "(unmanaged)") || strings.Contains(out, "not known") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	if out, _, _ = f.Call("top", "--once", "-n", "absent"); strings.Contains(out, "chat-0") {
		t.Errorf("of another namespace: %s", out)
	}
	if out, _, _ = f.Call("top", "--once", "-o", "json"); !strings.Contains(out, `"usedBytes": 2147483648`) {
		t.Errorf("json: %s", out)
	}
	for _, wrong := range [][]string{{"--grant", "a"}, {"--sort", "idle"}, {"-o", "csv"}} {
		if _, _, code := f.Call(append([]string{"top", "--once"}, wrong...)...); code != command.ExitUsage {
			t.Errorf("%v: status %d", wrong, code)
		}
	}
}

// kerf top reads the monitors at the same time: here the first one answers only once the second one is asked. It names
// a monitor whose answer is no exposition.
func TestTopReadsMonitorsAtTheSameTime(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	const pods = "/api/v1/namespaces/kerf-system/pods"
	for _, n := range []string{"1", "2", "3"} {
		f.Lists[pods] = append(f.Lists[pods], `{"metadata":{"name":"kerf-monitor-`+n+`"},"spec":{"nodeName":"gpu-`+n+`"}}`)
	}
	second := make(chan struct{})
	f.Unlocked = func(w http.ResponseWriter, path string) bool {
		switch path {
		case pods + "/kerf-monitor-1:9446/proxy/metrics":
			<-second
			_, _ = io.WriteString(w, "# TYPE kerf_usage_memory_bytes gauge\nkerf_usage_memory_bytes{"+
				`container="main",gpu_uuid="GPU-gpu-1-0",owner="grant",namespace="team",pod="chat-0"} 2.147483648e+09`+
				"\n")
		case pods + "/kerf-monitor-2:9446/proxy/metrics":
			close(second)
			_, _ = io.WriteString(w, "<html>")
		case pods + "/kerf-monitor-3:9446/proxy/metrics":
		default:
			return false
		}
		return true
	}
	out, errOut, code := f.Call("top", "--once")
	if code != command.ExitOK || !strings.Contains(out, "2GiB") || strings.Count(out, "not known: ") != 1 ||
		!strings.Contains(out, "of node gpu-2") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
}

func TestDoctorOfACluster(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	out, errOut, code := f.Call("doctor")
	if code != command.ExitFailure || !strings.Contains(out, "gpu-1 serves pods") ||
		!strings.Contains(out, "gpu-2 does not serve pods\n  reason: the last report of its kerf-agent") ||
		errOut == "" {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	f.Lists["/api/v1/nodes"] = []string{`{"metadata":{"name":"gpu-1"},"status":{"allocatable":{"nvidia.com/gpu":"2"}}}`}
	if out, _, code = f.Call("doctor", "-o", "yaml"); code != command.ExitOK ||
		!strings.Contains(out, "advertises 2 nvidia.com/gpu here") {
		t.Errorf("status %d: %s", code, out)
	}
}

// With --node, doctor names the preset of the chart, from what the Node reports.
func TestDoctorNamesThePreset(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	f.On = func(w http.ResponseWriter, _, path, _ string) bool {
		if path == "/api/v1/nodes/gpu-1" {
			_, _ = io.WriteString(w, `{"metadata":{"name":"gpu-1"},"status":{"nodeInfo":{"osImage":"Talos (v1.11.2)",`+
				`"kubeletVersion":"v1.34.1","containerRuntimeVersion":"containerd://2.1.4"}}}`)
		}
		return path == "/api/v1/nodes/gpu-1"
	}
	out, errOut, code := f.Call("doctor", "--node", "gpu-1", "--no-job")
	if code != command.ExitOK || out != "gpu-1 needs preset talos: the system is \"Talos (v1.11.2)\"\n"+
		"  helm install -f deploy/chart/presets/talos.yaml\n"+
		"  The files of the node were not examined: --no-job is set\n" {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	if out, _, code = f.Call("doctor", "--node", "gpu-1", "--no-job", "-o", "json"); code != command.ExitOK ||
		!strings.Contains(out, `"preset": "talos"`) {
		t.Errorf("status %d: %s", code, out)
	}
	if out, errOut, code = f.Call("doctor", "--node", "gpu-9"); code != command.ExitFailure || out != "" ||
		!strings.Contains(errOut, "gpu-9") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
}

// After an upgrade, doctor names the labels and taints that have no effect any more.
func TestDoctorNamesRenamedLabels(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	f.Lists["/api/v1/nodes"] = []string{
		`{"metadata":{"name":"gpu-1","labels":{"kerf.dev/node":"true","kerf.dev/deploy-agent":"true"}}}`,
		`{"metadata":{"name":"gpu-3","labels":{"kerf.dev/node":"true"}},"spec":{"taints":[{"key":"kerf.dev/starting"}]}}`}
	f.Lists["/api/v1/namespaces"] = []string{
		`{"metadata":{"name":"team","labels":{"kerf.dev/host-paths":"allowed","kerf.dev/scheduler":"own"}}}`,
		`{"metadata":{"name":"other","labels":{"kerf.dev/privileged-pods":"no"}}}`}
	out, errOut, code := f.Call("doctor")
	for _, want := range []string{"gpu-1 serves pods", "gpu-3 does not serve pods",
		"kubectl label node gpu-3 kerf.dev/deploy-agent=true kerf.dev/node-",
		"kubectl taint node gpu-3 kerf.dev/starting-", "namespace team does not serve pods",
		"kubectl label namespace team kerf.dev/allow-host-paths=true kerf.dev/host-paths-",
		"kubectl label namespace team kerf.dev/set-scheduler=false kerf.dev/scheduler-"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s%s", want, out, errOut)
		}
	}
	if code != command.ExitFailure || strings.Contains(out, "namespace other") ||
		strings.Contains(out, "node gpu-1 kerf.dev") {
		t.Errorf("status %d:\n%s", code, out)
	}
}

// TestWhereACommandAsks is the rule by which a command asks this machine's agent or the cluster.
func TestWhereACommandAsks(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	with, without := t.TempDir(), t.TempDir()
	clitest.WriteFile(t, with, "kerf.sock", "", 0o600)
	for name, tt := range map[string]struct {
		plugin bool
		env    map[string]string
		args   []string
		want   bool
	}{
		"no agent, no cluster":         {false, nil, []string{"--run-dir", without}, false},
		"kubectl":                      {true, nil, nil, true},
		"kubectl, and an agent's name": {true, nil, []string{"--run-dir", with}, false},
		"a kubeconfig is there":        {false, map[string]string{"KUBECONFIG": f.Config}, nil, true},
		"a context": {false, map[string]string{"KUBECONFIG": f.Config}, []string{"--context", "x"},
			true},
		"a server":             {false, nil, []string{"--server", "https://a"}, true},
		"with an agent's name": {false, map[string]string{"KUBECONFIG": f.Config, "KERF_DIR": with}, nil, false},
		"a pod":                {false, map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, nil, true},
	} {
		p := clitest.New(tt.env)
		p.App.Plugin = tt.plugin
		root := p.App.Root(Commands)
		status, _, err := root.Find([]string{"status"})
		if err != nil {
			t.Fatal(err)
		}
		if err := status.ParseFlags(tt.args); err != nil {
			t.Fatal(err)
		}
		if p.App.Dir == command.DefaultDir {
			p.App.Dir = without
		}
		if got := p.App.Remote(status); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	p := clitest.New(map[string]string{"KUBECONFIG": f.Config})
	root := p.App.Root(Commands)
	p.App.Dir = with
	if p.App.Remote(root) {
		t.Error("an agent is here, and the cluster is asked")
	}
}

// In a pod without the folder of the agent's sockets, doctor checks the cluster.
func TestDoctorInAPod(t *testing.T) {
	if command.Exists(command.DefaultDir) {
		t.Skip("this machine has an agent, which is checked instead")
	}
	p := clitest.New(map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
	if _, _ = p.App.Execute([]string{"doctor"}, Commands); !strings.Contains(p.ErrOut.String(), "find a cluster") {
		t.Error(p.ErrOut.String())
	}
}

func TestPluginName(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	out, _, _ := f.Call("status", "--help")
	if !strings.Contains(out, "kubectl kerf status [flags]") || !strings.Contains(out, "--context") ||
		strings.Contains(out, "--client-key") {
		t.Errorf("help: %s", out)
	}
	if _, errOut, code := f.Call("nothing"); code != command.ExitUsage ||
		!strings.Contains(errOut, "kubectl kerf: see kubectl kerf --help") {
		t.Errorf("status %d: %s", code, errOut)
	}
}

func TestCompletion(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
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
		out, _, code := f.Call(append([]string{"__complete"}, tt.args...)...)
		if code != command.ExitOK || !strings.Contains(out, tt.want) {
			t.Errorf("%s: status %d: %s", name, code, out)
		}
	}
	if out, _, code := f.Call("completion", "kubectl"); code != command.ExitOK || out != command.KubectlCompletion {
		t.Errorf("status %d: %s", code, out)
	}
	if out, _, code := f.Call("completion", "bash"); code != command.ExitOK || !strings.Contains(out, "__start_kerf") {
		t.Errorf("status %d: %.80s", code, out)
	}
}

func TestMain(m *testing.M) { clitest.Main(m, Commands) }
