// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a podresources server whose answers a test gives, one after the other; the last is repeated.
type fake struct {
	podresources.UnimplementedPodResourcesListerServer

	mu      sync.Mutex
	answers []answer
	calls   atomic.Int32
}

type answer struct {
	resp *podresources.ListPodResourcesResponse
	err  error
	hang bool
}

func (f *fake) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (
	*podresources.ListPodResourcesResponse, error) {
	f.calls.Add(1)
	f.mu.Lock()
	a := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	f.mu.Unlock()
	if a.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return a.resp, a.err
}

func start(t *testing.T, socket string, f *fake) (stop func()) {
	t.Helper()
	return startServer(t, socket, f)
}

func startServer(t *testing.T, socket string, f podresources.PodResourcesListerServer) (stop func()) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	podresources.RegisterPodResourcesListerServer(srv, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	stop = sync.OnceFunc(func() { srv.Stop(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func open(t *testing.T) (*Client, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf-pr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "kubelet.sock")
	c, err := Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, socket
}

func devices(resource string, ids ...string) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

func pod(name string, containers ...*podresources.ContainerResources) *podresources.ListPodResourcesResponse {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Name: name, Namespace: "ns", Containers: containers}}}
}

func container(name string, d ...*podresources.ContainerDevices) *podresources.ContainerResources {
	return &podresources.ContainerResources{Name: name, Devices: d}
}

func TestList(t *testing.T) {
	ref := sharing.ContainerRef{Namespace: "ns", Pod: "p", Container: "main"}
	good := pod("p",
		container("main", devices(sharing.ResourceMemory, "u0002"), devices("other.example/x", "7"),
			devices(sharing.ResourceMemory, "u0001"), devices(sharing.ResourcePercent, "u0100", "u0003", "u0003")),
		container("idle"))
	want := map[sharing.ContainerRef]map[string][]string{ref: {
		sharing.ResourceMemory:  {"u0001", "u0002"},
		sharing.ResourcePercent: {"u0003", "u0100"},
	}}
	busy := answer{err: status.Error(codes.ResourceExhausted, "rejected by rate limit")}
	for name, tc := range map[string]struct {
		answers []answer
		within  time.Duration
		want    map[sharing.ContainerRef]map[string][]string
		err     error
		calls   int32
	}{
		"entries for single ids are joined": {answers: []answer{{resp: good}}, want: want, calls: 1},
		"no pods": {answers: []answer{{resp: &podresources.ListPodResourcesResponse{}}},
			want: map[sharing.ContainerRef]map[string][]string{}, calls: 1},
		"too many calls, then an answer": {answers: []answer{busy, busy, {resp: good}}, want: want, calls: 3},
		"too many calls for ever": {answers: []answer{busy}, within: 300 * time.Millisecond,
			err: sharing.ErrUnavailable},
		"not ready after a restart": {
			answers: []answer{{err: status.Error(codes.FailedPrecondition, "not ready")}}, err: sharing.ErrUnavailable,
			calls: 1},
		"hangs": {answers: []answer{{hang: true}}, within: 2 * time.Second,
			err: sharing.ErrUnavailable, calls: 1},
		"a kubelet without the service": {answers: []answer{{err: status.Error(codes.Unimplemented, "no")}},
			err: sharing.ErrUnsupported, calls: 1},
		"refused": {answers: []answer{{err: status.Error(codes.PermissionDenied, "no")}},
			err: sharing.ErrDenied, calls: 1},
		"a pod without a name": {answers: []answer{{resp: pod("")}}, err: sharing.ErrInvalid, calls: 1},
		"a container without a name": {answers: []answer{{resp: pod("p", container(""))}},
			err: sharing.ErrInvalid, calls: 1},
		"an entry without ids": {
			answers: []answer{{resp: pod("p", container("main", devices(sharing.ResourceGPU)))}},
			err:     sharing.ErrInvalid, calls: 1},
		"an empty id": {
			answers: []answer{{resp: pod("p", container("main", devices(sharing.ResourceGPU, "g01", "")))}},
			err:     sharing.ErrInvalid, calls: 1},
		"an empty id of someone else's": {
			answers: []answer{{resp: pod("p", container("main", devices("other.example/x", "")))}},
			want:    map[sharing.ContainerRef]map[string][]string{}, calls: 1},
		"a name that only begins like ours": {
			answers: []answer{{resp: pod("p", container("main", devices("kerf.devil/gpu", "g01")))}},
			want:    map[sharing.ContainerRef]map[string][]string{}, calls: 1},
		"half an answer, then a lost answer": {
			answers: []answer{{err: status.Error(codes.Internal, "stream terminated")}}, err: sharing.ErrUnavailable,
			calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, socket := open(t)
			f := &fake{answers: tc.answers}
			start(t, socket, f)
			ctx := t.Context()
			if tc.within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.within)
				defer cancel()
			}
			got, err := c.List(ctx)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err != nil && got != nil {
				t.Errorf("an error and yet an answer: %v", got)
			}
			if diff := cmp.Diff(tc.want, got); err == nil && diff != "" {
				t.Errorf("holdings (-want +got):\n%s", diff)
			}
			if n := f.calls.Load(); tc.calls != 0 && n != tc.calls {
				t.Errorf("%d calls, want %d", n, tc.calls)
			}
		})
	}
}

// A kubelet that is not there is an error at once; one that comes back is found by the same client.
func TestRestart(t *testing.T) {
	c, socket := open(t)
	if _, err := c.List(t.Context()); !errors.Is(err, sharing.ErrUnavailable) {
		t.Fatalf("no kubelet: %v", err)
	}
	for range 3 {
		stop := start(t, socket, &fake{answers: []answer{{resp: pod("p")}}})
		eventually.Nil(t, "the answer", func() error { _, err := c.List(t.Context()); return err })
		stop()
		if _, err := c.List(t.Context()); !errors.Is(err, sharing.ErrUnavailable) {
			t.Fatalf("kubelet stopped: %v", err)
		}
	}
}

// An answer that is truncated anywhere is an error.
func TestCutOff(t *testing.T) {
	c, socket := open(t)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			// An HTTP/2 SETTINGS frame, then the end.
			_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
			_, _ = conn.Read(make([]byte, 1024))
			_ = conn.Close()
		}
	})
	if got, err := c.List(t.Context()); !errors.Is(err, sharing.ErrUnavailable) || got != nil {
		t.Errorf("answer %v, error %v", got, err)
	}
	_ = ln.Close()
	wg.Wait()
}

func TestCancel(t *testing.T) {
	c, socket := open(t)
	f := &fake{answers: []answer{{hang: true}}}
	start(t, socket, f)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.List(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want the caller's own", err)
		}
	})
	eventually.Nil(t, "the answer", func() error {
		if f.calls.Load() == 0 {
			return errors.New("not called")
		}
		return nil
	})
	cancel()
	wg.Wait()
}
