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

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
)

// Server is a fake agent. The functions may be set before Start; a nil one answers UNIMPLEMENTED.
type Server struct {
	nodev1.UnimplementedNodeServer

	// OnClaim answers Claim.
	OnClaim func(*nodev1.ClaimRequest) (*nodev1.ClaimResponse, error)
	// OnArm answers Arm.
	OnArm func(*nodev1.ArmRequest) (*nodev1.ArmResponse, error)
	// OnRelease answers Release.
	OnRelease func(*nodev1.ReleaseRequest) (*nodev1.ReleaseResponse, error)
	// OnLimit answers Limit.
	OnLimit func(*nodev1.LimitRequest) (*nodev1.LimitResponse, error)
	// Silent makes a watch send nothing.
	Silent bool

	mu      sync.Mutex
	picture *nodev1.GetNodeResponse
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
	nodev1.RegisterNodeServer(s.grpc, s)
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
func (s *Server) Show(p *nodev1.GetNodeResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.picture, _ = proto.Clone(p).(*nodev1.GetNodeResponse)
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

func (s *Server) current() *nodev1.GetNodeResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.picture == nil {
		return &nodev1.GetNodeResponse{}
	}
	return s.picture
}

// GetNode answers the picture.
func (s *Server) GetNode(context.Context, *nodev1.GetNodeRequest) (*nodev1.GetNodeResponse, error) {
	s.called("GetNode")
	return s.current(), nil
}

// Claim answers as OnClaim does.
func (s *Server) Claim(ctx context.Context, r *nodev1.ClaimRequest) (*nodev1.ClaimResponse, error) {
	s.called("Claim")
	if s.OnClaim == nil {
		return s.UnimplementedNodeServer.Claim(ctx, r)
	}
	return s.OnClaim(r)
}

// Arm answers as OnArm does.
func (s *Server) Arm(ctx context.Context, r *nodev1.ArmRequest) (*nodev1.ArmResponse, error) {
	s.called("Arm")
	if s.OnArm == nil {
		return s.UnimplementedNodeServer.Arm(ctx, r)
	}
	return s.OnArm(r)
}

// Release answers as OnRelease does.
func (s *Server) Release(ctx context.Context, r *nodev1.ReleaseRequest) (*nodev1.ReleaseResponse, error) {
	s.called("Release")
	if s.OnRelease == nil {
		return s.UnimplementedNodeServer.Release(ctx, r)
	}
	return s.OnRelease(r)
}

// Limit answers as OnLimit does.
func (s *Server) Limit(ctx context.Context, r *nodev1.LimitRequest) (*nodev1.LimitResponse, error) {
	s.called("Limit")
	if s.OnLimit == nil {
		return s.UnimplementedNodeServer.Limit(ctx, r)
	}
	return s.OnLimit(r)
}

// Watch sends the picture at once, at every Show and at every interval.
func (s *Server) Watch(r *nodev1.WatchRequest, stream grpc.ServerStreamingServer[nodev1.GetNodeResponse]) error {
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
