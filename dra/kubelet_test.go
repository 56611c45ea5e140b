// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// agent is a running plugin with kubelet's directories, and a client as kubelet has one.
type agent struct {
	*Plugin
	conn *grpc.ClientConn
	end  func()
}

// startAgent runs a plugin until end, or until the test ends.
func startAgent(t *testing.T, dir string, opt Options) *agent {
	t.Helper()
	opt.Registry, opt.Plugins = filepath.Join(dir, "registry"), filepath.Join(dir, "plugins")
	if err := os.MkdirAll(opt.Registry, 0o750); err != nil {
		t.Fatal(err)
	}
	a := &agent{Plugin: New(opt)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+filepath.Join(opt.Plugins, dra.Driver, "dra.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	a.conn = conn
	a.end = sync.OnceFunc(func() {
		cancel()
		_ = conn.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(a.end)
	return a
}

// TestKubelet has kubelet's calls over the plugin's socket. A claim is prepared, again after a restart of the agent,
// and unprepared twice. The ResourceSlices stay while no agent runs.
func TestKubelet(t *testing.T) {
	dir, c := socketDir(t), claim()
	client := fake.NewClientset(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid-node"}})
	prep := &preparer{}
	opt := plugin(prep).opt
	opt.Client = client
	nameSlices(client)
	slicesMade, err := client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer slicesMade.Stop()
	request := &draapi.NodePrepareResourcesRequest{Claims: []*draapi.Claim{{Namespace: "team", Name: "one", Uid: uid}}}
	for start := range 2 {
		a := startAgent(t, dir, opt)
		kubelet := draapi.NewDRAPluginClient(a.conn)
		for range 2 {
			got, err := kubelet.NodePrepareResources(t.Context(), request)
			if err != nil || got.Claims[uid].GetError() != "" {
				t.Fatalf("start %d: %v, %v", start, got, err)
			}
			if d := got.Claims[uid].Devices; len(d) != 3 || !slices.Equal(d[0].CdiDeviceIds,
				[]string{"kerf.dev/guard=armed", "kerf.dev/claim=" + uid + ".gpu"}) {
				t.Errorf("start %d: %v", start, d)
			}
		}
		if start == 0 {
			<-slicesMade.ResultChan()
		}
		a.end()
		if list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{}); err != nil ||
			len(list.Items) == 0 {
			t.Errorf("start %d: %d slices, %v", start, len(list.Items), err)
		}
	}
	a := startAgent(t, dir, opt)
	kubelet := draapi.NewDRAPluginClient(a.conn)
	for range 2 {
		got, err := kubelet.NodeUnprepareResources(t.Context(), &draapi.NodeUnprepareResourcesRequest{
			Claims: request.Claims})
		if err != nil || got.Claims[uid].GetError() != "" || !slices.Equal(prep.ended, []string{uid}) {
			t.Errorf("%v, %v", got, err)
		}
	}
	prep.err = sharing.ErrExhausted
	got, err := kubelet.NodePrepareResources(t.Context(), request)
	if err != nil || !strings.Contains(got.Claims[uid].GetError(), sharing.ErrExhausted.Error()) {
		t.Errorf("rejected: %v, %v", got, err)
	}
}

// nameSlices gives ResourceSlices names, as the API server does.
func nameSlices(client *fake.Clientset) {
	n := 0
	client.PrependReactor("create", "resourceslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		n++
		object := a.(clienttesting.CreateAction).GetObject()
		object.(*resourceapi.ResourceSlice).Name = fmt.Sprint("slice-", n)
		return false, nil, nil
	})
}

// socketDir is a folder whose sockets have a name that is short enough.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestKubeletHearsOfHealth over kubelet's health API: an XID makes both devices of the GPU unhealthy, and a reset
// healthy.
func TestKubeletHearsOfHealth(t *testing.T) {
	opt := plugin(&preparer{}).opt
	opt.Client = fake.NewClientset()
	var mu sync.Mutex
	health, changed := sharing.HealthOK, make(chan struct{})
	opt.Devices = func() ([]dra.Device, bool) {
		mu.Lock()
		defer mu.Unlock()
		return devices(health, 1), true
	}
	opt.Changed = func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return changed }
	set := func(h sharing.Health) {
		mu.Lock()
		defer mu.Unlock()
		close(changed)
		health, changed = h, make(chan struct{})
	}
	a := startAgent(t, socketDir(t), opt)
	stream, err := healthapi.NewDRAResourceHealthClient(a.conn).NodeWatchResources(t.Context(),
		&healthapi.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		is   sharing.Health
		want healthapi.HealthStatus
	}{{sharing.HealthOK, healthapi.HealthStatus_HEALTHY}, {sharing.HealthUnhealthy, healthapi.HealthStatus_UNHEALTHY},
		{sharing.HealthOK, healthapi.HealthStatus_HEALTHY}} {
		set(step.is)
		for {
			got, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Devices) != 2 || got.Devices[0].Device.PoolName != "node-1" {
				t.Fatalf("%v", got)
			}
			if got.Devices[0].Health == step.want && got.Devices[1].Health == step.want {
				break
			}
		}
	}
}
