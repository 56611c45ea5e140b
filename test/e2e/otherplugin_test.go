// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	// pluginDir is where kubelet has its own socket, and looks for those of device plugins.
	pluginDir = "/var/lib/kubelet/device-plugins/"
	// otherResource is what NVIDIA's device plugin hands GPUs out as.
	otherResource = "nvidia.com/gpu"
)

// otherPlugin is a device plugin that hands out whole GPUs as NVIDIA's does with "deviceListStrategy: cdi-cri": ids are
// UUIDs, and the answer to kubelet are names of the node's own CDI spec. It is that plugin as far as kubelet sees it,
// and has none of its code.
type otherPlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	mu   sync.Mutex
	gpus []string
	// changed is closed when gpus change, and then replaced.
	changed chan struct{}
	done    chan struct{}
}

// startOtherPlugin registers it with the node's kubelet, until the test ends.
func (e *testCase) startOtherPlugin(gpus ...string) *otherPlugin {
	e.Helper()
	p := &otherPlugin{gpus: gpus, changed: make(chan struct{}), done: make(chan struct{})}
	const endpoint = "e2e-other.sock"
	socket := e.node.path(pluginDir + endpoint)
	listener, err := (&net.ListenConfig{}).Listen(background(), "unix", socket)
	if err != nil {
		e.Fatal(err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	e.Cleanup(func() {
		close(p.done)
		server.Stop()
		if err := <-served; err != nil {
			e.Errorf("the other plugin: %v", err)
		}
		_ = os.Remove(socket)
	})
	conn, err := grpc.NewClient("passthrough:///kubelet", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.node.path(pluginDir+"kubelet.sock"))
		}))
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(background(), time.Minute)
	defer cancel()
	if _, err := pluginapi.NewRegistrationClient(conn).Register(ctx,
		&pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: endpoint,
			ResourceName: otherResource}); err != nil {
		e.Fatalf("register %s: %v", otherResource, err)
	}
	e.offersOther(len(gpus))
	return p
}

// handOut has it hand out these GPUs from now on.
func (p *otherPlugin) handOut(e *testCase, gpus ...string) {
	e.Helper()
	p.mu.Lock()
	p.gpus = gpus
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	e.offersOther(len(gpus))
}

// offersOther waits until kubelet offers so many of the other plugin's.
func (e *testCase) offersOther(n int) {
	e.Helper()
	eventually(e, fmt.Sprintf("%d %s", n, otherResource), func() error {
		if _, usable, err := e.capacity(otherResource); err != nil || usable != int64(n) {
			return fmt.Errorf("%d are offered, %w", usable, err)
		}
		return nil
	})
}

// GetDevicePluginOptions implements the device plugin's API, and so do those below.
func (*otherPlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch tells the GPUs, and again when they are others.
func (p *otherPlugin) ListAndWatch(_ *pluginapi.Empty,
	stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		answer, changed := &pluginapi.ListAndWatchResponse{}, p.changed
		for _, gpu := range p.gpus {
			answer.Devices = append(answer.Devices, &pluginapi.Device{ID: gpu, Health: pluginapi.Healthy})
		}
		p.mu.Unlock()
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-p.done:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate answers with the CDI names of the GPUs.
func (*otherPlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		one := &pluginapi.ContainerAllocateResponse{}
		for _, id := range c.GetDevicesIds() {
			one.CdiDevices = append(one.CdiDevices, &pluginapi.CDIDevice{Name: otherResource + "=" + id})
		}
		out.ContainerResponses = append(out.ContainerResponses, one)
	}
	return out, nil
}
