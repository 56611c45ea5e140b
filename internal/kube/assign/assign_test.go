// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// claim is allocated on a node at a second; without a node it is not allocated.
func claim(name, node string, second int64, devices ...string) *resourceapi.ResourceClaim {
	out := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		UID: types.UID("uid-" + name)}}
	if node == "" {
		return out
	}
	out.Status.Allocation = &resourceapi.AllocationResult{AllocationTimestamp: new(metav1.Unix(second, 0))}
	for _, d := range devices {
		r := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: dra.Driver, Pool: node, Device: d}
		if strings.HasPrefix(d, "mig") {
			r.BindingConditions = []string{dra.ConditionCreated}
			r.BindingFailureConditions = []string{dra.ConditionFailed}
		}
		out.Status.Allocation.Devices.Results = append(out.Status.Allocation.Devices.Results, r)
	}
	return out
}

// gpuNode is a GPUNode with a cordon and a status.
func gpuNode(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gpunode.Group + "/" + gpunode.Version, "kind": gpunode.Kind,
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"cordonedGPUs": []any{map[string]any{"uuid": "GPU-1"}}},
		"status":   map[string]any{"pool": "default"}}}
}

// cluster is an API server with claims and GPUNodes.
type cluster struct {
	*testing.T
	claims *fake.Clientset
	nodes  *dynamicfake.FakeDynamicClient
}

func newCluster(t *testing.T, nodes ...string) *cluster {
	var objects []runtime.Object
	for _, n := range nodes {
		objects = append(objects, gpuNode(n))
	}
	return &cluster{t, fake.NewClientset(), dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{gpuNodes(): "GPUNodeList"}, objects...)}
}

// start runs a controller until its end is called.
func (c *cluster) start() (end func()) {
	c.Helper()
	one, err := newController(slog.New(slog.DiscardHandler), c.claims, c.nodes)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	done := make(chan error, 1)
	go func() { done <- one.run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			c.Error(err)
		}
	}
}

// set creates or changes a claim.
func (c *cluster) set(claim *resourceapi.ResourceClaim) {
	c.Helper()
	api := c.claims.ResourceV1().ResourceClaims("ns")
	_, err := api.Update(c.Context(), claim, metav1.UpdateOptions{})
	if err != nil {
		_, err = api.Create(c.Context(), claim, metav1.CreateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) remove(name string) {
	if err := c.claims.ResourceV1().ResourceClaims("ns").Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// want compares the claims of a node with "NAME SECOND DEVICES".
func (c *cluster) want(what, node string, want ...string) {
	c.Helper()
	time.Sleep(time.Second)
	u, err := c.nodes.Resource(gpuNodes()).Get(c.Context(), node, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	has, ok := claimsIn(u)
	var got []string
	for _, a := range has {
		at, err := time.Parse(time.RFC3339, a.AllocatedAt)
		if err != nil || a.UID != "uid-"+a.Name || a.Namespace != "ns" {
			c.Errorf("%s: %+v, %v", what, a, err)
		}
		got = append(got, fmt.Sprint(a.Name, " ", at.Unix(), " ", strings.Join(a.Devices, " ")))
	}
	cordons, _, _ := unstructured.NestedSlice(u.Object, "spec", "cordonedGPUs")
	status, _, _ := unstructured.NestedString(u.Object, "status", "pool")
	if !ok || !slices.Equal(got, want) || len(cordons) != 1 || status != "default" {
		c.Errorf("%s: node %s has %q, cordons %v, status %q; want %q", what, node, got, cordons, status, want)
	}
}

// patches is how often a GPUNode was written.
func (c *cluster) patches() (n int) {
	for _, a := range c.nodes.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

// TestAssign follows claims from allocation to allocation. Only claims with binding conditions are assigned, to the
// node of the allocation. Nothing else of a GPUNode changes.
func TestAssign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.set(claim("early", "a", 10, "mig-1"))
		defer c.start()()
		c.want("at the start", "a", "early 10 mig-1")
		c.set(claim("one", "", 0))
		c.set(claim("share", "a", 20, "gpu-share"))
		c.want("nothing allocated", "a", "early 10 mig-1")
		c.set(claim("one", "b", 30, "mig-3", "mig-2", "gpu-share"))
		c.want("on another node", "b", "one 30 mig-2 mig-3")
		c.set(claim("one", "", 0)) // as after a failure
		c.want("deallocated", "b")
		c.set(claim("one", "a", 40, "mig-2"))
		c.want("allocated again", "a", "early 10 mig-1", "one 40 mig-2")
		c.want("not there any more", "b")
		c.set(claim("one", "b", 41, "mig-2"))
		c.want("moved", "b", "one 41 mig-2")
		c.want("moved away", "a", "early 10 mig-1")
		c.remove("early")
		c.want("deleted", "a")
		before := c.patches()
		ready := claim("one", "b", 41, "mig-2")
		ready.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: dra.Driver, Pool: "b", Device: "mig-2"}}
		c.set(ready)
		c.want("ready", "b", "one 41 mig-2")
		if c.patches() != before {
			t.Error("a write without a change")
		}
	})
}

// TestControllerRestarts: the next controller corrects what changed meanwhile, and failed writes are tried again.
func TestControllerRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		end := c.start()
		c.set(claim("one", "a", 10, "mig-1"))
		c.want("at first", "a", "one 10 mig-1")
		end()
		c.remove("one")
		c.set(claim("two", "a", 20, "mig-1"))
		c.want("without a controller", "a", "one 10 mig-1")
		failures := 3
		c.nodes.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("connection refused")
		})
		defer c.start()()
		time.Sleep(lastRetry)
		c.want("after it", "a", "two 20 mig-1")
		if failures >= 0 {
			t.Error("no write has failed")
		}
		// A node joins, or its GPUNode is created again.
		c.set(claim("three", "b", 30, "mig-1"))
		time.Sleep(time.Second)
		if _, err := c.nodes.Resource(gpuNodes()).Create(t.Context(), gpuNode("b"),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.want("a new node", "b", "three 30 mig-1")
	})
}

// TestLead: one process works. Another one follows when the Lease of the first has run out. A process that loses its
// Lease ends.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, away := fake.NewClientset(), atomic.Bool{}
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), &coordinationv1.Lease{}, errors.New("connection refused")
		})
		working := make(chan string, 2)
		work := func(name string) func(context.Context) error {
			return func(ctx context.Context) error { working <- name; <-ctx.Done(); return nil }
		}
		start := func(name string) (end context.CancelFunc, done chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			done = make(chan error, 1)
			go func() { done <- lead(ctx, client, Options{Identity: name}, work(name)) }()
			return cancel, done
		}
		endFirst, first := start("first")
		if got := <-working; got != "first" {
			t.Fatal(got)
		}
		endSecond, second := start("second")
		time.Sleep(time.Minute)
		if len(working) != 0 {
			t.Fatalf("%s works, too", <-working)
		}
		endFirst()
		if err := <-first; err != nil {
			t.Error(err)
		}
		began := time.Now()
		if got := <-working; got != "second" || time.Since(began) > leaseTime+3*retryTime {
			t.Errorf("%s works after %v", got, time.Since(began))
		}
		away.Store(true)
		if err := <-second; !errors.Is(err, errLost) {
			t.Errorf("without the Lease: %v", err)
		}
		endSecond()
		failed := errors.New("no claims")
		err := lead(t.Context(), fake.NewClientset(), Options{Identity: "third"},
			func(context.Context) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("work has failed: %v", err)
		}
	})
}
