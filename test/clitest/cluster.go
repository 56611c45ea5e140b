// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package clitest

import (
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

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// Cluster is an API server in miniature: lists by path, and answers to what is written.
type Cluster struct {
	mu    sync.Mutex
	Lists map[string][]string
	// On answers what is no list; it is called with mu held.
	On func(w http.ResponseWriter, method, path, body string) bool
	// Unlocked is asked before On and without mu, so that it may wait for another request.
	Unlocked func(w http.ResponseWriter, path string) bool
	// wrote has each request that is no read.
	wrote    []string
	read     []string
	Config   string
	commands command.Family
}

// StartCluster is the recorded cluster, against which these commands are run.
func StartCluster(t *testing.T, commands command.Family) *Cluster {
	t.Helper()
	f := &Cluster{Lists: Recorded(), commands: commands}
	for i, n := range f.Lists[command.GPUNodesPath] {
		f.Lists[command.GPUNodesPath][i] = regexp.MustCompile(`"podUID":"uid-([^"]+)"`).ReplaceAllString(n,
			`"podUID":"uid-$1","namespace":"team","pod":"$1"`)
	}
	for _, node := range []string{"gpu-1", "gpu-2"} {
		f.Lists["/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"] = append(
			f.Lists["/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"],
			fmt.Sprintf(`{"metadata":{"name":"kerf-node-%s"},"spec":{"renewTime":%q,"leaseDurationSeconds":40}}`, node,
				time.Now().UTC().Add(map[string]time.Duration{"gpu-2": -time.Hour}[node]).Format(
					"2006-01-02T15:04:05.000000Z07:00")))
	}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	f.Config = filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- "+
		"{name: x, context: {cluster: c, namespace: team}}\n- {name: other, context: {cluster: c}}\n"+
		"current-context: x\n", server.URL)
	if err := os.WriteFile(f.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Cluster) serve(w http.ResponseWriter, r *http.Request) {
	if f.Unlocked != nil && f.Unlocked(w, r.URL.Path) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		f.read = append(f.read, r.URL.RequestURI())
	} else {
		f.wrote = append(f.wrote, r.Method+" "+r.URL.Path+" "+string(body))
	}
	if f.On != nil && f.On(w, r.Method, r.URL.Path, string(body)) {
		return
	}
	if items, ok := f.Lists[r.URL.Path]; ok && r.Method == http.MethodGet {
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

// Call runs kubectl-kerf against it.
func (f *Cluster) Call(args ...string) (out, errOut string, code int) {
	p := New(map[string]string{"KUBECONFIG": f.Config})
	p.App.Plugin = true
	code, _ = p.App.Execute(args, f.commands)
	return p.Out.String(), p.ErrOut.String(), code
}

// Writes has each request so far that was no read.
func (f *Cluster) Writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.wrote...)
}

// Reads has the path and the query of each read so far.
func (f *Cluster) Reads() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.read...)
}

// Recorded is a small cluster as an API server tells of it: three nodes of two GPUs, seven pods that run and one that
// waits.
func Recorded() map[string][]string {
	lists := map[string][]string{}
	grants := map[string][]string{}
	grant := func(node, uid string, gpu, gib int) {
		grants[node] = append(grants[node],
			fmt.Sprintf(
				`{"id":"c-%s","podUID":%q,"container":"main","shares":[{"gpu":"GPU-%s-%d","memoryBytes":%d,"percent":0}]}`, uid, uid, node, gpu, gib<<30))
	}
	pod := func(name, owner, node string, gib int) {
		lists["/api/v1/pods"] = append(lists["/api/v1/pods"],
			fmt.Sprintf(
				`{"metadata":{"name":%q,"namespace":"team","uid":"uid-%s","ownerReferences":[{"kind":"ReplicaSet","name":%q,"controller":true}]},
			"spec":{"nodeName":%q,"containers":[{"name":"main","resources":{"requests":{"cpu":"4","memory":"16Gi"},"limits":{"kerf.dev/gpu-memory-gib":"%d"}}}]},"status":{"phase":"Running"}}`, name, name, owner, node, gib))
	}
	for i, p := range []struct {
		node     string
		gpu, gib int
	}{{"gpu-1", 0, 30}, {"gpu-1", 0, 30}, {"gpu-1", 1, 60}, {"gpu-2", 0, 30}, {"gpu-2", 1, 60}, {"gpu-3", 0, 60},
		{"gpu-3", 1, 30}} {
		name, owner := fmt.Sprintf("chat-%d", i), "chat"
		if p.gib == 60 {
			name, owner = fmt.Sprintf("embed-%d", i), "embed"
		}
		pod(name, owner, p.node, p.gib)
		grant(p.node, "uid-"+name, p.gpu, p.gib)
	}
	pod("chat-9", "chat", "", 30)
	for _, node := range []string{"gpu-1", "gpu-2", "gpu-3"} {
		lists["/api/v1/nodes"] = append(lists["/api/v1/nodes"],
			fmt.Sprintf(
				`{"metadata":{"name":%q},"status":{"allocatable":{"cpu":"64","memory":"512Gi"},"conditions":[{"type":"Ready","status":"True"}]}}`, node))
		var gpus []string
		for i := range 2 {
			gpus = append(gpus, fmt.Sprintf(
				`{"uuid":"GPU-%s-%d","index":%d,"model":"NVIDIA H100 80GB HBM3","allocatableBytes":%d,"health":"healthy","levels":["driver"]}`, node, i, i, 80<<30))
		}
		lists["/apis/kerf.dev/v1alpha1/gpunodes"] = append(lists["/apis/kerf.dev/v1alpha1/gpunodes"],
			fmt.Sprintf(
				`{"metadata":{"name":%q},"status":{"conditions":[{"type":"Ready","status":"True"}],"gpus":[%s],"grants":[%s]}}`, node,
				strings.Join(gpus, ","), strings.Join(grants[node], ",")))
	}
	return lists
}
