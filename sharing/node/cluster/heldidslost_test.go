// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/deviceplugin"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
	"github.com/kerf-gpu/kerf/test/fakekubelet"
)

// olderKubelet has no question after one pod.
type olderKubelet struct{ *fakekubelet.Kubelet }

func (olderKubelet) Get(context.Context, string, string) (heldIDs, error) {
	return nil, sharing.ErrUnsupported
}

// comingPods are pods of 1 GiB that come while the plugin runs.
type comingPods struct {
	k *fakekubelet.Kubelet
	p *deviceplugin.Plugin

	mu sync.Mutex
	podsKnown
}

// bind has the API server know of a pod.
func (c *comingPods) bind(n int) sharing.ContainerRef {
	name := fmt.Sprint("p", n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = append(c.pods, asking(strconv.Itoa(n), name, 1))
	return begunOf(strconv.Itoa(n), name, "main")
}

// begin has the runtime know of it, on the second GPU, and informs the plugin.
func (c *comingPods) begin(ref sharing.ContainerRef) {
	c.mu.Lock()
	c.begun = append(c.begun, ref)
	on := slices.Clone(c.begun)
	c.mu.Unlock()
	c.p.SetOwners(map[sharing.GPURef][]sharing.ContainerRef{sharing.GPURef{UUID: "GPU-b"}: on})
}

// startComing runs a plugin with two GPUs of 30 GiB, of which the first is lost.
func startComing(t *testing.T, door func(*fakekubelet.Kubelet) podResources) *comingPods {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf-h") // a short one: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dir = filepath.Join(dir, "dp")
	c := &comingPods{k: fakekubelet.New(dir)}
	if err := c.k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.k.Stop)
	share := serve.NewShare(limit.Share{Name: "kubelet", Fixed: true, Bounds: limit.Bounds{
		Conns: 64, PeerConns: 64, Requests: 256, PeerRequests: 256, Streams: 64, PeerStreams: 64, Bytes: 8 << 20,
		PeerBytes: 8 << 20,
	}})
	c.p = deviceplugin.New(deviceplugin.Options{Dir: dir, Share: share, PodResources: &assignedIDs{
		kubelet: door(c.k),
		pods: func() ([]sharing.Pod, bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Clone(c.pods), true
		},
		begun: func() []sharing.ContainerRef {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Clone(c.begun)
		},
	}})
	inv := deviceplugin.Inventory{Memory: true,
		Units: []deviceplugin.Unit{{GPU: sharing.GPURef{UUID: "GPU-a"}, GiB: 30, Lost: true},
			{GPU: sharing.GPURef{UUID: "GPU-b"}, GiB: 30}}}
	if err := c.p.SetInventory(inv); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.p.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	eventually.True(t, "30 of 60", func() bool {
		all, usable := c.k.Count(sharing.ResourceMemory)
		return all == 60 && usable == 30
	})
	return c
}

// While a GPU is lost, each new pod keeps what kubelet gives it, and can start. As many ids as were lost are unhealthy,
// and none that a container on the other GPU has.
func TestPodsComeWhileAGPUIsLost(t *testing.T) {
	t.Parallel()
	c := startComing(t, func(k *fakekubelet.Kubelet) podResources { return k })
	var refs []sharing.ContainerRef
	given := heldIDs{}
	for n := range 30 {
		ref := c.bind(n)
		c.p.SetOwners(nil) // whatever kicks
		if _, err := c.k.Admit(t.Context(), ref, sharing.ResourceMemory, 1); err != nil {
			t.Fatalf("pod %d: %v", n, err)
		}
		ids, err := c.k.Get(t.Context(), ref.Namespace, ref.Pod)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(given, ids)
		c.begin(ref)
		if err := c.k.Prepare(t.Context(), ref); err != nil {
			t.Errorf("pod %d: %v", n, err)
		}
		refs = append(refs, ref)
	}
	if _, err := c.k.Admit(t.Context(), c.bind(30), sharing.ResourceMemory, 1); err == nil {
		t.Error("a pod got what was lost")
	}
	now := heldIDs{}
	for _, ref := range refs {
		ids, err := c.k.Get(t.Context(), ref.Namespace, ref.Pod)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(now, ids)
		if err := c.k.Prepare(t.Context(), ref); err != nil {
			t.Errorf("%s cannot start again: %v", ref, err)
		}
		if _, err := c.k.Admit(t.Context(), ref, sharing.ResourceMemory, 1); err != nil {
			t.Errorf("a restarted kubelet would not take %s: %v", ref, err)
		}
	}
	if diff := cmp.Diff(given, now); diff != "" {
		t.Errorf("ids (-given +held):\n%s", diff)
	}
	if sick := c.k.Unhealthy(sharing.ResourceMemory); len(sick) != 30 {
		t.Errorf("%d ids are unhealthy, and 30 are lost: %v", len(sick), sick)
	}
	if n := c.k.Lists(); n != 0 {
		t.Errorf("kubelet was requested its list %d times", n)
	}
}

// What the test above avoids: a kubelet without that question gets a request for its list. A pod that it admits
// meanwhile has no ids and never starts.
func TestListTakesIDs(t *testing.T) {
	t.Parallel()
	c := startComing(t, func(k *fakekubelet.Kubelet) podResources { return olderKubelet{k} })
	first := c.bind(0)
	if _, err := c.k.Admit(t.Context(), first, sharing.ResourceMemory, 1); err != nil {
		t.Fatal(err)
	}
	late, done := sharing.ContainerRef{Namespace: "ns", Pod: "late", Container: "main"}, make(chan error, 1)
	var once sync.Once
	c.k.Counted(func() {
		once.Do(func() {
			_, err := c.k.Admit(context.Background(), late, sharing.ResourceMemory, 1)
			done <- err
		})
	})
	c.begin(first)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the end of the list", func() bool { return c.k.Prepare(t.Context(), late) != nil })
	if err := c.k.Prepare(t.Context(), first); err != nil {
		t.Error(err)
	}
}
