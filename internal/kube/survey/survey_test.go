// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package survey_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
)

const nodes = `[
 {"metadata":{"name":"a","labels":{"rack":"r1"}},"status":{"allocatable":{"cpu":"95500m","memory":"1000Gi"},"conditions":[{"type":"Ready","status":"True"}]}},
 {"metadata":{"name":"b"},"spec":{"unschedulable":true},"status":{"allocatable":{"cpu":"8","memory":"64Gi"},"conditions":[{"type":"Ready","status":"True"}]}},
 {"metadata":{"name":"c"},"status":{"allocatable":{"cpu":"8","memory":"64Gi"},"conditions":[{"type":"Ready","status":"Unknown"}]}}]`

const pods = `[
 {"metadata":{"name":"web-1","namespace":"team","uid":"u1","annotations":{"kerf.dev/gpu-model":"H100","other":"x"},"ownerReferences":[{"kind":"ReplicaSet","name":"web","controller":true}]},
  "spec":{"nodeName":"a","priority":100,"overhead":{"cpu":"100m","memory":"1Gi"},
   "initContainers":[{"name":"side","restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}},{"name":"init","resources":{"requests":{"cpu":"3","memory":"1Gi"}}}],
   "containers":[{"name":"main","resources":{"requests":{"cpu":"2","memory":"4Gi"},"limits":{"kerf.dev/gpu-memory-gib":"10"}}}]},
  "status":{"phase":"Running"}},
 {"metadata":{"name":"agent-x","namespace":"kerf-system","uid":"u2","ownerReferences":[{"kind":"DaemonSet","name":"agent","controller":true}]},"spec":{"nodeName":"a","containers":[{"name":"c"}]},"status":{"phase":"Running"}},
 {"metadata":{"name":"static-a","namespace":"kube-system","uid":"u3","annotations":{"kubernetes.io/config.mirror":"h"},"ownerReferences":[{"kind":"Node","name":"a","controller":true}]},"spec":{"nodeName":"a","containers":[{"name":"c"}]},"status":{"phase":"Running"}},
 {"metadata":{"name":"done","namespace":"team","uid":"u4"},"spec":{"nodeName":"a","containers":[{"name":"c"}]},"status":{"phase":"Succeeded"}},
 {"metadata":{"name":"waits","namespace":"team","uid":"u5"},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Pending"}}]`

const reports = `[{"metadata":{"name":"a"},"status":{"ready":true}},{"metadata":{"name":"b"}}]`

// serve answers the lists one item at a time, so that pages count, and by broken where it is not nil.
func serve(t *testing.T, broken func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	lists := map[string]string{"/api/v1/nodes": nodes, "/api/v1/pods": pods,
		"/apis/kerf.dev/v1alpha1/gpunodes": reports}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken != nil && broken(w, r) {
			return
		}
		var items []json.RawMessage
		if json.Unmarshal([]byte(lists[r.URL.Path]), &items) != nil || r.Method != http.MethodGet ||
			r.URL.Query().Get("limit") == "" {
			http.NotFound(w, r)
			return
		}
		at, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		next := ""
		if at+1 < len(items) {
			next = strconv.Itoa(at + 1)
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[%s]}`, next, items[at])
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- "+
		"{name: x, context: {cluster: c, user: u}}\ncurrent-context: x\nusers:\n- {name: u, user: {token: t}}\n",
		server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// take takes a survey of the cluster that a kubeconfig names.
func take(ctx context.Context, t *testing.T, kubeconfig string) (survey.Cluster, error) {
	t.Helper()
	api, err := access.Open(access.Options{File: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	return survey.Take(ctx, api)
}

func TestTakeReadsAllPages(t *testing.T) {
	got, err := take(t.Context(), t, serve(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	container := func(name string) []sharing.PodContainer { return []sharing.PodContainer{{Name: name}} }
	want := survey.Cluster{
		Nodes: []survey.Node{
			{Name: "a", MilliCPU: 95_500, Memory: 1000 * sharing.GiB, Labels: map[string]string{"rack": "r1"}},
			{Name: "b", MilliCPU: 8000, Memory: 64 * sharing.GiB, Closed: true},
			{Name: "c", MilliCPU: 8000, Memory: 64 * sharing.GiB, Closed: true},
		},
		Pods: []survey.Pod{
			{
				Pod: sharing.Pod{
					UID: "u1", Namespace: "team", Name: "web-1", Node: "a",
					Annotations: map[string]string{"kerf.dev/gpu-model": "H100"}, Priority: 100,
					Containers: []sharing.PodContainer{
						{Name: "side", Kind: sharing.ContainerSidecar}, {Name: "init", Kind: sharing.ContainerInit},
						{Name: "main", Limits: map[string]string{"kerf.dev/gpu-memory-gib": "10"}},
					},
				},
				MilliCPU: 3600, Memory: 5 * sharing.GiB, Owner: "ReplicaSet web",
			},
			{Pod: sharing.Pod{UID: "u2", Namespace: "kerf-system", Name: "agent-x", Node: "a",
				Containers: container("c")}, Owner: "DaemonSet agent", Fixed: true},
			{Pod: sharing.Pod{UID: "u3", Namespace: "kube-system", Name: "static-a", Node: "a",
				Containers: container("c")}, Owner: "Node a", Fixed: true},
			{Pod: sharing.Pod{UID: "u5", Namespace: "team", Name: "waits", Containers: container("c")}},
		},
		Reports: map[string]json.RawMessage{"a": json.RawMessage(`{"ready":true}`)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTakeSaysWhatIsWrong(t *testing.T) {
	status := func(path string, code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == path {
				w.WriteHeader(code)
			}
			return r.URL.Path == path
		}
	}
	for name, tt := range map[string]struct {
		broken func(http.ResponseWriter, *http.Request) bool
		want   error
	}{
		"no right to pods": {status("/api/v1/pods", http.StatusForbidden), sharing.ErrDenied},
		"who are you":      {status("/api/v1/nodes", http.StatusUnauthorized), sharing.ErrDenied},
		"not a cluster of Kerf's": {status("/apis/kerf.dev/v1alpha1/gpunodes", http.StatusNotFound),
			sharing.ErrNotFound},
		"overloaded": {status("/api/v1/nodes", http.StatusTooManyRequests), sharing.ErrUnavailable},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = fmt.Fprint(w, "<html>")
			return true
		}, sharing.ErrUnavailable},
		"a list of something else": {func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = fmt.Fprint(w, `{"items":[{"spec":7}]}`)
			return true
		}, sharing.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := take(t.Context(), t, serve(t, tt.broken)); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := take(over, t, serve(t, nil)); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("given up: %v", err)
	}
}
