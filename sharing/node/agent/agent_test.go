// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing/node/options"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// built is an agent that has its runtime, and no driver.
func built(t *testing.T, config string) (*agent, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	dir := t.TempDir()
	a := &agent{opt: options.Options{Dirs: options.Dirs{Dir: dir}, Source: options.ConfigSource{File: config}},
		state: dir, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := a.build(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	return a, &log
}

func TestHTTP(t *testing.T) {
	a, _ := built(t, "")
	l, err := serve.ListenUnix(filepath.Join(a.opt.Dirs.Dir, "http.sock"), os.Getegid())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(a.opt.Dirs.Dir, "http.sock"))
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket mode %v %v", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	reg := prometheus.NewRegistry()
	stuck := ""
	tell := probes{unready: func() []string { return []string{"kubelet has not been informed"} },
		stuck: func() string { return stuck }}
	go func() {
		done <- serveHTTP(ctx, serve.NewShare(listenerShares()[4]).Listen(l, serve.Rules{}), a.runtime, reg, tell)
	}()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(a.opt.Dirs.Dir, "http.sock"))
		},
	}}
	send := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode, string(body)
	}
	get := func(path string) (int, string) {
		t.Helper()
		return send(http.MethodGet, path)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/"} {
			if code, body := send(method, path); code != http.StatusMethodNotAllowed && code != http.StatusNotFound {
				t.Errorf("%s %s: %d %s, want it refused: the port allows reads only", method, path, code,
					body)
			}
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/": 404} {
		code, body := get(path)
		if code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
		if path == "/readyz" && (!strings.Contains(body, "driver") ||
			!strings.Contains(body, "kubelet has not been informed")) {
			t.Errorf("/readyz does not say why: %s", body)
		}
	}
	stuck = "the driver is gone" // no request is under way
	if code, body := get("/healthz"); code != 503 || !strings.Contains(body, stuck) {
		t.Errorf("/healthz of one that is stuck: %d %s", code, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
