// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakenode is an agent for tests: it serves the node API on a real unix socket and answers what the
// test tells it to.
//
// It promises the API's shape, not its meaning: it holds no ledger and moves no process. Only tests import
// it.
package fakenode

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// Server is a fake agent. The functions may be set before Start; a nil one answers UNIMPLEMENTED.
type Server struct {
	nodeapi.UnimplementedNodeServer

	// OnReserve answers Reserve.
	OnReserve func(*nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error)
	// OnActivate answers Activate.
	OnActivate func(*nodeapi.ActivateRequest) (*nodeapi.ActivateResponse, error)
	// OnRelease answers Release.
	OnRelease func(*nodeapi.ReleaseRequest) (*nodeapi.ReleaseResponse, error)
	// OnResize answers Resize.
	OnResize func(*nodeapi.ResizeRequest) (*nodeapi.ResizeResponse, error)
	// Silent makes a watch send nothing.
	Silent bool

	mu      sync.Mutex
	picture *nodeapi.GetNodeResponse
	calls   []string
	changed chan struct{}
	grpc    *grpc.Server
	done    chan struct{}
}

// Start serves on dir/kerf.sock until the test ends or Kill is called.
func (s *Server) Start(t testing.TB, dir string) *Server {
	t.Helper()
	path := filepath.Join(dir, "kerf.sock")
	_ = os.Remove(path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	// As after a SIGKILL, the socket file stays.
	l.SetUnlinkOnClose(false)
	s.grpc, s.done = grpc.NewServer(), make(chan struct{})
	nodeapi.RegisterNodeServer(s.grpc, s)
	s.Show(s.current())
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l)
	}()
	t.Cleanup(s.Kill)
	return s
}

// Kill ends the server and every connection at once; the socket file stays, as after a SIGKILL.
func (s *Server) Kill() {
	s.grpc.Stop()
	<-s.done
}

// Show makes p the picture and sends it to every watcher.
func (s *Server) Show(p *nodeapi.GetNodeResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.picture, _ = proto.Clone(p).(*nodeapi.GetNodeResponse)
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// Calls are the names of the calls so far, in order.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *Server) called(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
}

func (s *Server) current() *nodeapi.GetNodeResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.picture == nil {
		return &nodeapi.GetNodeResponse{}
	}
	return s.picture
}

// GetNode answers the picture.
func (s *Server) GetNode(context.Context, *nodeapi.GetNodeRequest) (*nodeapi.GetNodeResponse, error) {
	s.called("GetNode")
	return s.current(), nil
}

// Reserve answers as OnReserve does.
func (s *Server) Reserve(ctx context.Context, r *nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
	s.called("Reserve")
	if s.OnReserve == nil {
		return s.UnimplementedNodeServer.Reserve(ctx, r)
	}
	return s.OnReserve(r)
}

// Activate answers as OnActivate does.
func (s *Server) Activate(ctx context.Context, r *nodeapi.ActivateRequest) (*nodeapi.ActivateResponse, error) {
	s.called("Activate")
	if s.OnActivate == nil {
		return s.UnimplementedNodeServer.Activate(ctx, r)
	}
	return s.OnActivate(r)
}

// Release answers as OnRelease does.
func (s *Server) Release(ctx context.Context, r *nodeapi.ReleaseRequest) (*nodeapi.ReleaseResponse, error) {
	s.called("Release")
	if s.OnRelease == nil {
		return s.UnimplementedNodeServer.Release(ctx, r)
	}
	return s.OnRelease(r)
}

// Resize answers as OnResize does.
func (s *Server) Resize(ctx context.Context, r *nodeapi.ResizeRequest) (*nodeapi.ResizeResponse, error) {
	s.called("Resize")
	if s.OnResize == nil {
		return s.UnimplementedNodeServer.Resize(ctx, r)
	}
	return s.OnResize(r)
}

// Watch sends the picture at once, at every Show and at every interval.
func (s *Server) Watch(r *nodeapi.WatchRequest, stream grpc.ServerStreamingServer[nodeapi.GetNodeResponse]) error {
	s.called("Watch")
	for {
		s.mu.Lock()
		picture, changed := s.picture, s.changed
		s.mu.Unlock()
		if !s.Silent {
			if err := stream.Send(picture); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		case <-time.After(time.Duration(r.GetIntervalMs()) * time.Millisecond):
		}
	}
}
