// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestFollowSpec: each change of the node's object is reported, also after a broken watch, and invalid ones, too.
func TestFollowSpec(t *testing.T) {
	watches := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/apis/kerf.dev/v1alpha1/gpunodes" || q.Get("watch") != "true" ||
			q.Get("fieldSelector") != "metadata.name=n" {
			t.Errorf("asked %s", r.URL)
		}
		watches++
		switch watches {
		case 1:
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"n"},"status":{}}}`+"\n"+
				`{"type":"BOOKMARK","object":{}}`)
		case 2:
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":{"metadata":{"generation":5},"spec":{"watch":%d}}}`,
				watches)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- "+
		"{name: x, context: {cluster: c, user: u}}\ncurrent-context: x\nusers:\n- {name: u, user: {token: t}}\n",
		server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(Options{Kubeconfig: file, Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reported []string
	c.WatchSpec(ctx, func(spec Spec, err error) {
		switch {
		case errors.Is(err, sharing.ErrDenied):
			reported = append(reported, "denied")
		case err != nil:
			reported = append(reported, err.Error())
		default:
			reported = append(reported, fmt.Sprint(spec.Generation, string(spec.Text)))
		}
		if len(reported) == 3 {
			cancel()
		}
	})
	if want := []string{"0", "denied", `5{"watch":3}`}; fmt.Sprint(reported) != fmt.Sprint(want) {
		t.Errorf("reported %q", reported)
	}
}
