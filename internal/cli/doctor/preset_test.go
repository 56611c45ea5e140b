// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, ClusterCommands) }

// The states of the container of the Job.
const (
	pulls   = `{"waiting":{"reason":"ContainerCreating"}}`
	runs    = `{"running":{}}`
	done    = `{"terminated":{"exitCode":0,"reason":"Completed","startedAt":"2026-01-01T00:00:00Z"}}`
	noImage = `{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}`
	broke   = `{"terminated":{"exitCode":2,"reason":"Error","startedAt":"2026-01-01T00:00:00Z"}}`
)

// nodeCluster is a cluster with one node, whose Job it answers.
type nodeCluster struct {
	*clitest.Cluster
	version, ready string
	// namespace is the answer for kerf-system; empty for a cluster without it.
	namespace string
	// states are those of the container, one after the other; the last one stays. None means that there is no pod.
	states []string
	// rejected is why the API server rejects the Job; empty if it takes it.
	rejected string
	// stays is true if the API server does not delete the Job.
	stays bool
	// job is the status of the Job, and events are the items of the list of events.
	job, events string
	log         string
	// podRead is called at each read of the pods.
	podRead func()
}

func startNode(t *testing.T, version string, log string, states ...string) *nodeCluster {
	t.Helper()
	c := &nodeCluster{Cluster: clitest.StartCluster(t, ClusterCommands), version: version, ready: "True",
		states: states, log: log, job: `{}`, podRead: func() {}}
	c.On = c.answer
	return c
}

func (c *nodeCluster) answer(w http.ResponseWriter, method, path, body string) bool {
	_, name, isJob := strings.Cut(path, "/jobs")
	switch {
	case path == "/api/v1/nodes/gpu-1":
		_, _ = fmt.Fprintf(w, `{"metadata":{"name":"gpu-1"},"status":{"conditions":[{"type":"Ready","status":%q,
			"reason":"KubeletNotReady","message":"no network"}],"nodeInfo":{"osImage":"Ubuntu 24.04.3 LTS",
			"kubeletVersion":%q,"containerRuntimeVersion":"containerd://2.1.4"}}}`, c.ready, c.version)
	case path == "/api/v1/namespaces/kerf-system" && c.namespace != "":
		_, _ = io.WriteString(w, c.namespace)
	case isJob && method == http.MethodPost && c.rejected != "":
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"message":%q}`, c.rejected)
	case isJob && method == http.MethodPost:
		_, _ = io.WriteString(w, body)
	case isJob && method == http.MethodDelete && c.stays:
		w.WriteHeader(http.StatusInternalServerError)
	case isJob && method == http.MethodDelete:
		_, _ = io.WriteString(w, `{}`)
	case isJob:
		_, _ = fmt.Fprintf(w, `{"metadata":{"name":%q},"status":%s}`, strings.Trim(name, "/"), c.job)
	case strings.HasSuffix(path, "/events"):
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, c.events)
	case strings.HasSuffix(path, "/pods"):
		c.pods(w)
	case strings.HasSuffix(path, "/pods/p/log"):
		_, _ = io.WriteString(w, c.log)
	default:
		return false
	}
	return true
}

func (c *nodeCluster) pods(w http.ResponseWriter) {
	c.podRead()
	if len(c.states) == 0 {
		_, _ = io.WriteString(w, `{"items":[]}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"items":[{"metadata":{"name":"p","namespace":"default"},"status":{"containerStatuses":[
		{"name":"examine","state":%s}]}}]}`, c.states[0])
	if len(c.states) > 1 {
		c.states = c.states[1:]
	}
}

// wroteJob has the namespace and the Job that the command created. It fails the test unless the command deleted it.
func (c *nodeCluster) wroteJob(t *testing.T) (namespace string, j batchv1.Job) {
	t.Helper()
	wrote := c.Writes()
	if len(wrote) != 2 {
		t.Fatalf("wrote %q", wrote)
	}
	path, body, _ := strings.Cut(strings.TrimPrefix(wrote[0], "POST "), " ")
	if err := json.Unmarshal([]byte(body), &j); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(j.Name, "kerf-doctor-") || !strings.HasPrefix(wrote[1], "DELETE "+path+"/"+j.Name+" ") {
		t.Errorf("wrote %q", wrote)
	}
	return strings.Split(path, "/")[5], j
}

// filesOfK3s are the files of a node with K3s.
func filesOfK3s(t *testing.T) string {
	t.Helper()
	all, err := presets()
	if err != nil {
		t.Fatal(err)
	}
	f := preset.Files{OSImage: "Ubuntu 24.04.3 LTS", Paths: map[string]preset.Path{}}
	for _, p := range preset.Paths(all) {
		f.Paths[p] = preset.Path{Mount: &preset.Mount{}}
	}
	for _, s := range []string{"/run/k3s/containerd/containerd.sock", "/var/lib/kubelet/pod-resources/kubelet.sock",
		"/var/run/nri/nri.sock"} {
		f.Paths[s] = preset.Path{Kind: preset.Socket, Listens: true, Mount: &preset.Mount{}}
	}
	for _, p := range []string{"/usr/lib64/libnvidia-ml.so.1", "/etc/nvidia-container-runtime/config.toml"} {
		f.Paths[p] = preset.Path{Kind: preset.File, Mount: &preset.Mount{}}
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The Job's result overrides what the Node suggests. The command deletes the Job.
func TestNodePreset(t *testing.T) {
	c := startNode(t, "v1.37.1", filesOfK3s(t), pulls, runs, done)
	out, errOut, code := c.Call("doctor", "--node", "gpu-1")
	want := "gpu-1 needs preset k3s: the node has the sockets of this preset, and no listener at " +
		"/run/containerd/containerd.sock of preset kubeadm\n  helm install -f deploy/chart/presets/k3s.yaml " +
		"--set poolDefaults.driverLibrary=/usr/lib64/libnvidia-ml.so.1\n"
	if code != command.ExitOK || out != want {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	namespace, j := c.wroteJob(t)
	container := j.Spec.Template.Spec.Containers[0]
	all, err := presets()
	if err != nil {
		t.Fatal(err)
	}
	if namespace != "default" || !strings.Contains(errOut, "job "+j.Name+" of namespace default examines node gpu-1") ||
		j.Spec.Template.Spec.NodeName != "gpu-1" || container.Image != "kerf.dev/agent:test" ||
		!slices.Equal(container.Args[3:], preset.Paths(all)) {
		t.Errorf("namespace %s, job %+v; said %s", namespace, j, errOut)
	}
	for form, want := range map[string]string{"json": `"notExamined": ""`, "yaml": `notExamined: ""`} {
		if out, errOut, code = c.Call("doctor", "--node", "gpu-1", "-o", form); code != command.ExitOK ||
			!strings.Contains(out, want) || !strings.Contains(out, "k3s") {
			t.Errorf("%s: status %d: %s%s", form, code, out, errOut)
		}
	}
}

// The namespace of the Job is Kerf's if it exists. Flags name another one and another image.
func TestNodeJobFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace, want, image string
		args                   []string
	}{
		"before the installation": {"", "default", "kerf.dev/agent:test", nil},
		"kerf-system":             {`{}`, "kerf-system", "kerf.dev/agent:test", nil},
		"kerf-system that ends":   {`{"status":{"phase":"Terminating"}}`, "default", "kerf.dev/agent:test", nil},
		"flags": {`{}`, "ops", "mirror.example/agent:2",
			[]string{"-n", "ops", "--image", "mirror.example/agent:2"}},
		"the flag of all commands": {`{}`, "ops", "kerf.dev/agent:test",
			[]string{"--namespace=ops"}},
	} {
		c := startNode(t, "v1.33.3+k3s1", filesOfK3s(t), done)
		c.namespace = tt.namespace
		if _, errOut, code := c.Call(append([]string{"doctor", "--node", "gpu-1"},
			tt.args...)...); code != command.ExitOK {
			t.Errorf("%s: status %d: %s", name, code, errOut)
		}
		if namespace, j := c.wroteJob(t); namespace != tt.want || j.Spec.Template.Spec.Containers[0].Image != tt.image {
			t.Errorf("%s: namespace %s, job %+v", name, namespace, j)
		}
	}
	c := startNode(t, "v1.33.3+k3s1", filesOfK3s(t), done)
	if _, errOut, code := c.Call("-n", "ops", "doctor", "--node", "gpu-1"); code != command.ExitOK {
		t.Errorf("status %d: %s", code, errOut)
	}
	if namespace, _ := c.wroteJob(t); namespace != "ops" {
		t.Errorf("namespace %s, want that of the flag before the command", namespace)
	}
}

// If the Job cannot run, the output has the preset of the Node and the reason. The exit status says whether the preset
// is certain.
func TestNodeJobFails(t *testing.T) {
	failed := `{"conditions":[{"type":"Failed","status":"True","message":"it was active longer than its deadline"}]}`
	rejected := `{"reason":"FailedCreate","message":"violates PodSecurity","count":1}`
	for name, tt := range map[string]struct {
		change func(*nodeCluster)
		// want is in the output, and writes are the changing requests.
		want   string
		writes int
	}{
		"no right":  {func(c *nodeCluster) { c.rejected = "you may not" }, "you may not", 1},
		"not ready": {func(c *nodeCluster) { c.ready = "Unknown" }, "not ready: KubeletNotReady no network", 0},
		"no image": {func(c *nodeCluster) { c.states = []string{pulls, noImage} },
			"ImagePullBackOff: no such image; name an image that the node can pull with --image", 2},
		"pod rejected": {func(c *nodeCluster) { c.states, c.events = nil, rejected+","+rejected },
			"violates PodSecurity", 2},
		"job failed": {func(c *nodeCluster) { c.states, c.job = nil, failed }, "active longer than its deadline", 2},
		"old image": {func(c *nodeCluster) { c.states, c.log = []string{broke}, "unknown command" },
			`status 2: Error  "unknown command"`, 2},
		"no result": {func(c *nodeCluster) { c.log = "hello" }, "read the log of pod p: invalid character", 2},
	} {
		for version, status := range map[string]int{"v1.33.3+k3s1": command.ExitOK, "v1.33.3": command.ExitFailure} {
			c := startNode(t, version, "", done)
			tt.change(c)
			out, errOut, code := c.Call("doctor", "--node", "gpu-1")
			guess := map[int]string{command.ExitOK: "k3s", command.ExitFailure: "kubeadm"}[status]
			if code != status || !strings.Contains(out, "gpu-1 needs preset "+guess+": ") ||
				!strings.Contains(out, "not examined: ") || !strings.Contains(out, tt.want) {
				t.Errorf("%s, %s: status %d: %s%s", name, version, code, out, errOut)
			}
			wrote := c.Writes()
			if len(wrote) != tt.writes || tt.writes == 2 && !strings.HasPrefix(wrote[1], "DELETE ") {
				t.Errorf("%s, %s: wrote %q", name, version, wrote)
			}
			if status != command.ExitOK && !strings.Contains(errOut, "preset kubeadm of node gpu-1 is not certain") {
				t.Errorf("%s, %s: said %s", name, version, errOut)
			}
		}
	}
}

// The first failure to create the pod does not end the wait: it can come before the namespace is ready.
func TestNodeJobWaitsForItsPod(t *testing.T) {
	c := startNode(t, "v1.37.1", filesOfK3s(t))
	c.events = `{"reason":"FailedCreate","message":"service account not found","count":1}`
	reads := 0
	c.podRead = func() {
		if reads++; reads == 2 {
			c.states = []string{done}
		}
	}
	if out, errOut, code := c.Call("doctor", "--node", "gpu-1"); code != command.ExitOK ||
		!strings.Contains(out, "preset k3s") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
}

// A Job that cannot be deleted does not hide its result.
func TestNodeJobStays(t *testing.T) {
	c := startNode(t, "v1.37.1", filesOfK3s(t), done)
	c.stays = true
	out, errOut, code := c.Call("doctor", "--node", "gpu-1")
	if code != command.ExitOK || !strings.Contains(out, "preset k3s") || strings.Contains(out, "not examined") ||
		!strings.Contains(errOut, "remove it with kubectl delete job") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
}

// Without the Job, only the Node decides, and nothing is written.
func TestNodeWithoutJob(t *testing.T) {
	c := startNode(t, "v1.33.3", filesOfK3s(t), done)
	out, errOut, code := c.Call("doctor", "--node", "gpu-1", "--no-job")
	if code != command.ExitOK || !strings.Contains(out, "preset kubeadm") || len(c.Writes()) != 0 {
		t.Errorf("status %d: %s%s %q", code, out, errOut, c.Writes())
	}
}

// Ctrl-C deletes the Job.
func TestNodeJobInterrupted(t *testing.T) {
	c := startNode(t, "v1.33.3+k3s1", "", pulls)
	c.podRead = func() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGINT) }
	out, errOut, code := c.Call("doctor", "--node", "gpu-1")
	if code != 130 || out != "" || !strings.Contains(errOut, "stopped by signal: interrupt") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	c.wroteJob(t)
}

// The presets are those of the chart, with all of their paths.
func TestPresets(t *testing.T) {
	all, err := presets()
	if err != nil || len(all) != 11 {
		t.Fatalf("%d presets: %v", len(all), err)
	}
	for _, v := range all {
		if v.Runtime == "" || v.DriverLibrary == "" || v.Kubelet == "" || v.CDI == "" || v.CDISource == "" ||
			v.Hook == "" || v.RuntimeSocket == "" || v.NRISocket == "" || (v.Toolkit == "") != (v.Name == "cos" ||
			v.Name == "talos") {
			t.Errorf("%+v", v)
		}
	}
	for registry, want := range map[string]string{"": "kerf.dev/agent:v1.2.3",
		"registry.example/kerf": "registry.example/kerf/agent:v1.2.3"} {
		if got, err := agentImage(registry, "v1.2.3"); err != nil || got != want {
			t.Errorf("image %s, want %s: %v", got, want, err)
		}
	}
}
