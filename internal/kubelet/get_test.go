// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// getter is a kubelet that knows one pod; errs are what it answers first.
type getter struct {
	podresources.UnimplementedPodResourcesListerServer

	pod   *podresources.PodResources
	errs  []error
	calls atomic.Int32
}

func (g *getter) Get(_ context.Context, req *podresources.GetPodResourcesRequest) (
	*podresources.GetPodResourcesResponse, error) {
	n := int(g.calls.Add(1))
	if n <= len(g.errs) {
		return nil, g.errs[n-1]
	}
	// As kubelet says it: no status, words alone.
	if req.GetPodNamespace() != "ns" || req.GetPodName() != "p" {
		return nil, fmt.Errorf("pod %s in namespace %s not found", req.GetPodName(), req.GetPodNamespace())
	}
	return &podresources.GetPodResourcesResponse{PodResources: g.pod}, nil
}

func TestGet(t *testing.T) {
	good := pod("p", container("main", devices(sharing.ResourceMemory, "u0002"),
		devices(sharing.ResourceMemory, "u0001"), devices("other.example/x", "7")),
		container("idle")).GetPodResources()[0]
	want := map[sharing.ContainerRef]map[string][]string{
		{Namespace: "ns", Pod: "p", Container: "main"}: {sharing.ResourceMemory: {"u0001", "u0002"}},
	}
	busy := status.Error(codes.ResourceExhausted, "rejected by rate limit")
	for name, tc := range map[string]struct {
		ask   string
		pod   *podresources.PodResources
		errs  []error
		want  map[sharing.ContainerRef]map[string][]string
		err   error
		calls int32
	}{
		"a pod": {pod: good, want: want, calls: 1},
		"nothing given out yet": {pod: pod("p", container("main")).GetPodResources()[0],
			want: map[sharing.ContainerRef]map[string][]string{}, calls: 1},
		"too many calls":            {pod: good, errs: []error{busy, busy}, want: want, calls: 3},
		"a pod that is not there":   {ask: "q", err: sharing.ErrNotFound, calls: 1},
		"a name that says disabled": {ask: "Get method disabled", err: sharing.ErrNotFound, calls: 1},
		"switched off": {errs: []error{errors.New("PodResources API Get method disabled")},
			err: sharing.ErrUnsupported, calls: 1},
		"a kubelet without it": {errs: []error{status.Error(codes.Unimplemented, "unknown method Get")},
			err: sharing.ErrUnsupported, calls: 1},
		"other words": {errs: []error{errors.New("pod q in namespace ns not found")},
			err: sharing.ErrUnavailable, calls: 1},
		"not found, by someone else": {errs: []error{status.Error(codes.NotFound, "pod p in namespace ns not found")},
			err: sharing.ErrUnavailable, calls: 1},
		"no pod in the answer":      {err: sharing.ErrInvalid, calls: 1},
		"another pod in the answer": {pod: pod("q").GetPodResources()[0], err: sharing.ErrInvalid, calls: 1},
		"an entry without ids": {pod: pod("p",
			container("main", devices(sharing.ResourceGPU))).GetPodResources()[0], err: sharing.ErrInvalid, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, socket := open(t)
			g := &getter{pod: tc.pod, errs: tc.errs}
			startServer(t, socket, g)
			ask := "p"
			if tc.ask != "" {
				ask = tc.ask
			}
			got, err := c.Get(t.Context(), "ns", ask)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("holdings (-want +got):\n%s", diff)
			}
			if n := g.calls.Load(); n != tc.calls {
				t.Errorf("%d calls, want %d", n, tc.calls)
			}
		})
	}
}

// A kubelet that puts off every call, or is not there, has said nothing.
func TestGetNothing(t *testing.T) {
	c, socket := open(t)
	if _, err := c.Get(t.Context(), "ns", "p"); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("no kubelet: %v", err)
	}
	errs := make([]error, 1000)
	for i := range errs {
		errs[i] = status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	startServer(t, socket, &getter{errs: errs})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got, err := c.Get(ctx, "ns", "p"); !errors.Is(err, sharing.ErrUnavailable) || got != nil {
		t.Errorf("asked too often: %v, %v", got, err)
	}
}
