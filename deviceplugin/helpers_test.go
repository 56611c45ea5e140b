// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
	"github.com/kerf-gpu/kerf/test/fakekubelet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should come at once on an idle machine.
const patience = time.Minute

// folder is a short one: a socket's path has 107 bytes.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf-dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "device-plugins")
}

func kubelet(t testing.TB, dir string) *fakekubelet.Kubelet {
	t.Helper()
	k := fakekubelet.New(dir)
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

// run starts a plugin and returns what ends it.
func run(t testing.TB, p *Plugin) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func plugin(dir string, k PodResources, change ...func(*Options)) *Plugin {
	share := serve.NewShare(limit.Share{Bounds: limit.Bounds{
		Conns: 64, PeerConns: 64, Requests: 256, PeerRequests: 256, Streams: 64, PeerStreams: 64, Bytes: 1 << 20,
		PeerBytes: 1 << 20,
	}})
	o := Options{Dir: dir, Log: slog.New(slog.DiscardHandler), PodResources: k, Share: share}
	for _, c := range change {
		c(&o)
	}
	return New(o)
}

func all(units []Unit) Inventory {
	return Inventory{Units: units, Memory: true, Percent: true, Whole: true}
}

func set(t testing.TB, p *Plugin, inv Inventory) {
	t.Helper()
	if err := p.SetInventory(inv); err != nil {
		t.Fatal(err)
	}
}

// counts waits until kubelet counts that much of a resource.
func counts(t *testing.T, k *fakekubelet.Kubelet, resource string, capacity, allocatable int) {
	t.Helper()
	eventually.True(t, resource, func() bool {
		c, a := k.Count(resource)
		return c == capacity && a == allocatable
	})
}

func admit(t testing.TB, k *fakekubelet.Kubelet, ref sharing.ContainerRef, resource string, n int) []string {
	t.Helper()
	names, err := k.Admit(t.Context(), ref, resource, n)
	if err != nil {
		t.Fatalf("admit %s: %v", ref, err)
	}
	return names
}

// freshNames checks that no socket's name was ever registered twice.
func freshNames(t *testing.T, k *fakekubelet.Kubelet) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range k.Registrations() {
		if seen[r.Endpoint] {
			t.Errorf("endpoint %q was registered twice", r.Endpoint)
		}
		seen[r.Endpoint] = true
	}
}

// podResources answers as a test requires.
type podResources struct {
	mu   sync.Mutex
	next func(context.Context) (map[sharing.ContainerRef]map[string][]string, error)
	n    int
}

func (h *podResources) List(ctx context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	h.mu.Lock()
	h.n++
	next := h.next
	h.mu.Unlock()
	return next(ctx)
}

func (h *podResources) set(next func(context.Context) (map[sharing.ContainerRef]map[string][]string, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = next
}

func (h *podResources) calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func hang(ctx context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func broken(context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	return nil, errors.New("half an answer")
}

// sockets are ours in a folder.
func sockets(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if ours(e.Name()) {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out
}
