// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	containersv1 "github.com/containerd/containerd/api/services/containers/v1"
	eventsv1 "github.com/containerd/containerd/api/services/events/v1"
	introspectionv1 "github.com/containerd/containerd/api/services/introspection/v1"
	tasksv1 "github.com/containerd/containerd/api/services/tasks/v1"
	versionv1 "github.com/containerd/containerd/api/services/version/v1"
	apitypes "github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fake is a container runtime on a unix socket that answers what its fields say.
type fake struct {
	criv1.UnimplementedRuntimeServiceServer

	// name and version are the CRI's; without a name there is no CRI.
	name, version string
	config        string
	driver        *criv1.CgroupDriver
	exited        []string
	pods          []string // their UIDs
	// meanwhile runs while containers are being listed.
	meanwhile  func()
	plugins    []*introspectionv1.Plugin
	containers []*containersv1.Container
	tasks      []*tasktypes.Process
	// deaf makes a subscription never tell anything; eventless is a runtime without events.
	deaf, eventless bool

	mu          sync.Mutex
	subscribers map[chan *apitypes.Envelope]bool
	server      *grpc.Server
	done        chan struct{}
}

// start serves on path until the test ends or stop is called.
func (f *fake) start(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f.subscribers = map[chan *apitypes.Envelope]bool{}
	f.server, f.done = grpc.NewServer(), make(chan struct{})
	if f.name != "" {
		criv1.RegisterRuntimeServiceServer(f.server, f)
	}
	versionv1.RegisterVersionServer(f.server, fakeVersion{f: f})
	introspectionv1.RegisterIntrospectionServer(f.server, fakeIntrospection{f: f})
	containersv1.RegisterContainersServer(f.server, fakeContainers{f: f})
	tasksv1.RegisterTasksServer(f.server, fakeTasks{f: f})
	if !f.eventless {
		eventsv1.RegisterEventsServer(f.server, fakeEvents{f: f})
	}
	go func() {
		defer close(f.done)
		_ = f.server.Serve(l)
	}()
	t.Cleanup(f.stop)
}

// stop ends every connection at once, and removes the socket.
func (f *fake) stop() {
	f.server.Stop()
	<-f.done
}

// open starts f on a new socket and opens it.
func open(t *testing.T, f *fake) (*Client, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	if f != nil {
		f.start(t, path)
	}
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, path
}

func (f *fake) Version(context.Context, *criv1.VersionRequest) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{RuntimeName: f.name, RuntimeVersion: f.version}, nil
}

func (f *fake) Status(context.Context, *criv1.StatusRequest) (*criv1.StatusResponse, error) {
	return &criv1.StatusResponse{Info: map[string]string{"config": f.config}}, nil
}

func (f *fake) RuntimeConfig(context.Context, *criv1.RuntimeConfigRequest) (*criv1.RuntimeConfigResponse, error) {
	if f.driver == nil {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig")
	}
	return &criv1.RuntimeConfigResponse{Linux: &criv1.LinuxRuntimeConfiguration{CgroupDriver: *f.driver}}, nil
}

func (f *fake) ListContainers(context.Context, *criv1.ListContainersRequest) (*criv1.ListContainersResponse, error) {
	out := &criv1.ListContainersResponse{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.exited {
		out.Containers = append(out.Containers, &criv1.Container{Id: id})
	}
	return out, nil
}

func (f *fake) ListPodSandbox(context.Context, *criv1.ListPodSandboxRequest) (*criv1.ListPodSandboxResponse, error) {
	out := &criv1.ListPodSandboxResponse{}
	for _, uid := range f.pods {
		out.Items = append(out.Items, &criv1.PodSandbox{Id: "box of " + uid,
			Metadata: &criv1.PodSandboxMetadata{Uid: uid}})
	}
	return out, nil
}

// send tells every subscriber.
func (f *fake) send(e *apitypes.Envelope) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.subscribers {
		ch <- e
	}
}

type fakeVersion struct {
	versionv1.UnimplementedVersionServer
	f *fake
}

func (v fakeVersion) Version(context.Context, *emptypb.Empty) (*versionv1.VersionResponse, error) {
	return &versionv1.VersionResponse{Version: "v" + v.f.version}, nil
}

type fakeIntrospection struct {
	introspectionv1.UnimplementedIntrospectionServer
	f *fake
}

func (i fakeIntrospection) Plugins(context.Context, *introspectionv1.PluginsRequest) (*introspectionv1.PluginsResponse,
	error) {
	return &introspectionv1.PluginsResponse{Plugins: i.f.plugins}, nil
}

type fakeContainers struct {
	containersv1.UnimplementedContainersServer
	f *fake
}

func (c fakeContainers) List(ctx context.Context, _ *containersv1.ListContainersRequest) (
	*containersv1.ListContainersResponse, error) {
	if err := inNamespace(ctx); err != nil {
		return nil, err
	}
	if c.f.meanwhile != nil {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		c.f.meanwhile()
	}
	return &containersv1.ListContainersResponse{Containers: c.f.containers}, nil
}

type fakeTasks struct {
	tasksv1.UnimplementedTasksServer
	f *fake
}

func (s fakeTasks) List(ctx context.Context, _ *tasksv1.ListTasksRequest) (*tasksv1.ListTasksResponse, error) {
	if err := inNamespace(ctx); err != nil {
		return nil, err
	}
	return &tasksv1.ListTasksResponse{Tasks: s.f.tasks}, nil
}

func inNamespace(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get("containerd-namespace")) != 1 {
		return status.Error(codes.FailedPrecondition, "namespace is required")
	}
	return nil
}

type fakeEvents struct {
	eventsv1.UnimplementedEventsServer
	f *fake
}

func (e fakeEvents) Publish(ctx context.Context, r *eventsv1.PublishRequest) (*emptypb.Empty, error) {
	if err := inNamespace(ctx); err != nil {
		return nil, err
	}
	e.f.send(&apitypes.Envelope{Topic: r.GetTopic(), Namespace: NamespaceKerf, Event: r.GetEvent()})
	return &emptypb.Empty{}, nil
}

func (e fakeEvents) Subscribe(_ *eventsv1.SubscribeRequest, s eventsv1.Events_SubscribeServer) error {
	ch := make(chan *apitypes.Envelope, 64)
	if !e.f.deaf {
		e.f.mu.Lock()
		e.f.subscribers[ch] = true
		e.f.mu.Unlock()
		defer func() {
			e.f.mu.Lock()
			defer e.f.mu.Unlock()
			delete(e.f.subscribers, ch)
		}()
	}
	for {
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case envelope := <-ch:
			if err := s.Send(envelope); err != nil {
				return err
			}
		}
	}
}

// envelope is an event as containerd sends it.
func envelope(t *testing.T, namespace, topic string, body any) *apitypes.Envelope {
	t.Helper()
	event, err := typeurl.MarshalAnyToProto(body)
	if err != nil {
		t.Fatal(err)
	}
	return &apitypes.Envelope{Namespace: namespace, Topic: topic, Event: event}
}
