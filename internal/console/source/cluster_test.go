// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/internal/console/source"
	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/internal/kube/access"
)

const pods = `{"metadata":{"name":"waits","namespace":"team","uid":"u1"},"spec":{"containers":[{"name":"main",
	"resources":{"limits":{"kerf.dev/gpu-memory-gib":"100"}}}]},"status":{"conditions":[{"type":"PodScheduled",
	"status":"False","message":"needs 100 GiB"}]}}`

// api serves one node with a report and one pod. If denied is true, only the pods of a namespace may be listed.
func api(t *testing.T, denied bool) *access.Client {
	t.Helper()
	report, err := json.Marshal(consoletest.Node("n", 1))
	if err != nil {
		t.Fatal(err)
	}
	gpuNode := `{"metadata":{"name":"n"},"status":` + string(report) + "}"
	items := map[string]string{
		"/api/v1/nodes": `{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","status":"True"}],` +
			`"allocatable":{"cpu":"8","memory":"64Gi","kerf.dev/gpu-memory-gib":"79"}}}`,
		"/apis/kerf.dev/v1alpha1/gpunodes":                           gpuNode,
		"/api/v1/namespaces/team/pods":                               pods,
		"/api/v1/pods":                                               pods,
		"/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases": "",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item, ok := items[r.URL.Path]
		switch {
		case denied && r.URL.Path == "/api/v1/pods":
			w.WriteHeader(http.StatusForbidden)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
		default:
			_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[%s]}`, item)
		}
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- "+
		"{name: x, context: {cluster: c, user: u, namespace: team}}\ncurrent-context: x\nusers:\n"+
		"- {name: u, user: {}}\n",
		server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := access.Open(access.Options{File: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The hub gets nodes with reports and pods, also of a user who may list the pods of one namespace only.
func TestCluster(t *testing.T) {
	for _, denied := range []bool{false, true} {
		client := api(t, denied)
		ctx, cancel := context.WithCancel(t.Context())
		hub, done := stream.NewBroadcaster(time.Now), make(chan error, 1)
		c := source.NewCluster(client, client.Namespace, "")
		go func() { done <- c.Run(ctx, hub) }()
		for {
			changed, _, _, woken := hub.Since(model.Cursor{}, nil)
			var text []string
			for _, i := range changed {
				text = append(text, i.Key+string(i.Body))
			}
			all := strings.Join(text, "\n")
			if strings.Contains(all, "node/n{") && strings.Contains(all, "needs 100 GiB") {
				break
			}
			<-woken
		}
		if got := hub.Namespaces(); !slices.Equal(got, []string{"team"}) {
			t.Errorf("namespaces %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
