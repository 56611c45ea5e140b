// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

func TestOlderOf(t *testing.T) {
	own := version.MustParse("1.37.1")
	for _, c := range []struct{ server, want string }{
		{"v1.37.1", ""},
		{"v1.37.0+k3s1", ""},
		{"v1.38.2", ""},
		{"v1.36.2", "1.36"},
		{"v1.36.2-gke.1234000", "1.36"},
		{"v1.34.3", "1.34"},
		{"v1.33.6", "1.34"},
		{"v1.32.9", "1.34"},
	} {
		if got, err := olderOf(c.server, own); got != c.want || err != nil {
			t.Errorf("olderOf(%s) = %q, error %v, want %q", c.server, got, err, c.want)
		}
	}
	if got, err := olderOf("unknown", own); err == nil {
		t.Errorf("olderOf(unknown) = %q, want an error", got)
	}
}

// TestOldestVersionIsValid shows that Kubernetes' own check accepts the oldest version of olderOf.
func TestOldestVersionIsValid(t *testing.T) {
	opts := options.NewOptions()
	cmd := New("dev")
	own := opts.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	oldest, err := olderOf("v1.1.0", own)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Flags().Set(emulatedVersion, oldest); err != nil {
		t.Fatal(err)
	}
	if err := opts.ComponentGlobalsRegistry.Set(); err != nil {
		t.Fatalf("emulate %s: %v", oldest, err)
	}
	if errs := opts.ComponentGlobalsRegistry.Validate(); len(errs) > 0 {
		t.Errorf("emulate %s: %v", oldest, errs)
	}
}

// TestWaitsForTheAPIServer has an API server that fails at first.
func TestWaitsForTheAPIServer(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"major":"1","minor":"36","gitVersion":"v1.36.2"}`)
	}))
	defer server.Close()
	got, err := emulate(t.Context(), optionsOf(t, server.URL), time.Millisecond)
	if got != "1.36" || err != nil || calls.Load() < 2 {
		t.Errorf("emulate = %q after %d calls, error %v", got, calls.Load(), err)
	}
}

func TestSignalEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		http.Error(w, "not ready", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	if got, err := emulate(ctx, optionsOf(t, server.URL), time.Millisecond); err == nil {
		t.Errorf("emulate = %q, want an error", got)
	}
}

func optionsOf(t *testing.T, url string) *options.Options {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	write(t, kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u}]
current-context: c
`, url))
	opts := options.NewOptions()
	opts.ConfigFile = filepath.Join(dir, "config.yaml")
	write(t, opts.ConfigFile, fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q}
`, kubeconfig))
	return opts
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
