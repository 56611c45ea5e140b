// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestMetrics(t *testing.T) {
	tests := map[string]struct {
		handler http.HandlerFunc
		want    string
		kind    error
		text    string
	}{
		"exposition": {handler: func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(r.Method + " " + r.URL.Path + "\n"))
		}, want: "GET /metrics\n"},
		"refused": {handler: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}, kind: sharing.ErrUnavailable, text: "503 Service Unavailable: busy"},
		"no agent": {kind: nodeclient.ErrNoAgent, text: "start it with kerf-agent"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.handler != nil {
				l, err := net.Listen("unix", filepath.Join(dir, "http.sock"))
				if err != nil {
					t.Fatal(err)
				}
				s := httptest.NewUnstartedServer(tt.handler)
				s.Listener = l
				s.Start()
				defer s.Close()
			}
			var b strings.Builder
			err := nodeclient.Metrics(t.Context(), dir, &b)
			if !errors.Is(err, tt.kind) || b.String() != tt.want {
				t.Fatalf("got %q, %v", b.String(), err)
			}
			if err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%q does not say %q", err, tt.text)
			}
		})
	}
}
