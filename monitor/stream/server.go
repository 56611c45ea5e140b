// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
	"github.com/kerf-gpu/kerf/monitor/collect"
)

const (
	maxStreams      = 128
	maxRequest      = 1 << 20
	defaultInterval = time.Second
	longestInterval = time.Minute
)

// Server answers the telemetry API.
type Server struct {
	telemetryv1.UnimplementedTelemetryServer
	hub *collect.Hub

	// made are the newest snapshot's messages by what their readers want, and seq is its number: each is made and encoded
	// once.
	mu   sync.Mutex
	made map[string]*encoded
	seq  uint64
}

// New makes a server over a hub.
func New(hub *collect.Hub) *Server { return &Server{hub: hub} }

// Serve answers on l until ctx ends, and closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	telemetryv1.RegisterTelemetryServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	g.Stop() // streams have no end of their own to wait for
	return <-done
}

// Watch implements the telemetry API.
func (s *Server) Watch(in *telemetryv1.WatchRequest, out grpc.ServerStreamingServer[telemetryv1.Sample]) error {
	interval := defaultInterval
	if ms := in.GetIntervalMs(); ms != 0 {
		interval = time.Duration(ms) * time.Millisecond
	}
	if interval < collect.ShortestInterval || interval > longestInterval {
		return status.Errorf(codes.InvalidArgument, "interval_ms %d is out of range; write 100 to 60000", in.GetIntervalMs())
	}
	want := s.hub.Every(interval)
	defer want.End()
	keep := newFilter(in)
	name := keep.name()
	var after, missed uint64
	if newest := s.hub.Latest(); newest != nil {
		after = newest.Seq - 1 // a reader begins with what is, and not with what was
	}
	var sent time.Time
	for {
		snapshot, lost, err := s.hub.Next(out.Context(), after)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		after = snapshot.Seq
		if !sent.IsZero() {
			missed += lost
		}
		// A sample that is a little early is the one that was waited for.
		if !sent.IsZero() && snapshot.At.Sub(sent) < interval-interval/8 {
			continue
		}
		if err := s.send(out, snapshot, keep, name, missed); err != nil {
			return err
		}
		sent, missed = snapshot.At, 0
	}
}

// send sends a snapshot as one reader gets it.
func (s *Server) send(out grpc.ServerStreamingServer[telemetryv1.Sample], snapshot *collect.Snapshot, keep filter, name string, missed uint64) error {
	m, err := s.message(snapshot, keep, name)
	if err != nil {
		return err
	}
	if missed > 0 {
		return out.SendMsg(missing{m, missed})
	}
	return out.SendMsg(m)
}

// message is what a filter of that name leaves of a snapshot. Only the newest is kept for other readers: who comes late has
// it made anew.
func (s *Server) message(snapshot *collect.Snapshot, keep filter, name string) (*encoded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.made[name]; m != nil && s.seq == snapshot.Seq {
		return m, nil
	}
	m, err := encode(sampleOf(snapshot, keep))
	if err != nil {
		return nil, err
	}
	if snapshot.Seq > s.seq {
		s.made, s.seq = map[string]*encoded{}, snapshot.Seq
	}
	if snapshot.Seq == s.seq {
		s.made[name] = m
	}
	return m, nil
}
