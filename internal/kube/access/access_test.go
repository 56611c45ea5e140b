// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
)

// kubeconfig writes one with two contexts: x in namespace team, and other.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- "+
		"{name: x, context: {cluster: c, user: u, namespace: team}}\n- {name: other, context: {cluster: c, user: "+
		"u}}\ncurrent-context: x\nusers:\n- {name: u, user: {token: secret}}\n", server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, answer http.HandlerFunc) *access.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := access.Open(access.Options{File: kubeconfig(t, server.URL)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNamespace(t *testing.T) {
	file := kubeconfig(t, "http://127.0.0.1:1")
	context, flag := clientcmd.ConfigOverrides{CurrentContext: "other"}, clientcmd.ConfigOverrides{}
	flag.Context.Namespace = "mine"
	for name, tt := range map[string]struct {
		options access.Options
		want    string
	}{
		"of the context":     {access.Options{File: file}, "team"},
		"of none":            {access.Options{File: file, Overrides: context}, "default"},
		"of the flag":        {access.Options{File: file, Overrides: flag}, "mine"},
		"of the first there": {access.Options{Files: []string{file + "x", file}}, "team"},
	} {
		c, err := access.Open(tt.options)
		if err != nil || c.Namespace != tt.want {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

func TestNoCluster(t *testing.T) {
	for name, o := range map[string]access.Options{
		"no such file": {File: filepath.Join(t.TempDir(), "none")}, "nothing is named": {},
		"no such context": {File: kubeconfig(t, "http://127.0.0.1:1"),
			Overrides: clientcmd.ConfigOverrides{CurrentContext: "z"}},
	} {
		if _, err := access.Open(o); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRequests(t *testing.T) {
	var seen []string
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL, r.Header.Get("Content-Type"),
			r.Header.Get("Authorization"), body))
		_, _ = io.WriteString(w, `{"name":"n"}`)
	})
	var into struct{ Name string }
	if err := c.Do(t.Context(), http.MethodPatch, "/apis/x/y", url.Values{"a": {"b c"}},
		&access.Body{Type: access.MergePatch, Value: map[string]any{"k": nil}}, &into); err != nil || into.Name != "n" {
		t.Errorf("%v, %v", into, err)
	}
	if err := c.Do(t.Context(), http.MethodDelete, "/apis/x/y", nil, nil, nil); err != nil {
		t.Error(err)
	}
	want := []string{`PATCH /apis/x/y?a=b+c application/merge-patch+json  {"k":null}`, "DELETE /apis/x/y   "}
	if d := cmp.Diff(want, seen); d != "" {
		t.Error(d)
	}
	stream, err := c.Stream(t.Context(), "/log", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	if text, err := io.ReadAll(stream); err != nil || string(text) != `{"name":"n"}` {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := c.Text(t.Context(), "/log", nil, 4); err != nil || string(text) != `{"na` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestListReadsAllPages(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("labelSelector") != "a=b" || q.Get("limit") == "" {
			t.Errorf("asked %v", q)
		}
		next := map[string]string{"": "1", "1": "2", "2": ""}[q.Get("continue")]
		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":["p%s"]}`, next, q.Get("continue"))
	})
	var got []string
	query := url.Values{"labelSelector": {"a=b"}}
	err := c.List(t.Context(), "/api/v1/pods", query, func(raw json.RawMessage) error {
		got = append(got, string(raw))
		return nil
	})
	if d := cmp.Diff([]string{`"p"`, `"p1"`, `"p2"`}, got); d != "" || err != nil || len(query) != 1 {
		t.Errorf("%s, %v, %v", d, err, query)
	}
}

func TestRefusals(t *testing.T) {
	for status, want := range map[int]error{
		401: sharing.ErrDenied, 403: sharing.ErrDenied, 404: sharing.ErrNotFound, 409: sharing.ErrConflict,
		422: sharing.ErrInvalid, 429: sharing.ErrConflict, 500: sharing.ErrUnavailable,
	} {
		c := open(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"message":"the server's words"}`)
		})
		err := c.Do(t.Context(), http.MethodPost, "/x", nil, &access.Body{Type: access.JSON, Value: 1}, nil)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "the server's words") {
			t.Errorf("%d: %v", status, err)
		}
		if err := c.Get(t.Context(), "/x", nil, nil); status == 429 && !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("a read of one that is overloaded: %v", err)
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c, err := access.Open(access.Options{File: kubeconfig(t, gone.URL)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/x", nil, nil); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("no one there: %v", err)
	}
}
