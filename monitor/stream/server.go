// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/monitor/collect"
)

const (
	// maxRequest bounds a filter, in bytes: some thousand names.
	maxRequest      = 256 << 10
	defaultInterval = time.Second
	longestInterval = time.Minute
)

// Server answers the telemetry API.
type Server struct {
	telemetryapi.UnimplementedTelemetryServer
	hub *collect.Broadcaster

	// made are the newest snapshot's messages by what their readers want, and seq is its number: each is made and
	// encoded once.
	mu   sync.Mutex
	made map[string]*serve.Encoded
	seq  uint64
}

// New makes a server over a hub.
func New(hub *collect.Broadcaster) *Server { return &Server{hub: hub} }

// Serve answers on l until ctx ends, and closes l.
func (s *Server) Serve(ctx context.Context, l *serve.Listener) error {
	g := grpc.NewServer(serve.GRPC(serve.GRPCRules{
		MaxRequest: maxRequest, Streams: []string{telemetryapi.Telemetry_Watch_FullMethodName},
	})...)
	telemetryapi.RegisterTelemetryServer(g, s)
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
func (s *Server) Watch(in *telemetryapi.WatchRequest, out grpc.ServerStreamingServer[telemetryapi.Sample]) error {
	interval := defaultInterval
	if ms := in.GetIntervalMs(); ms != 0 {
		interval = time.Duration(ms) * time.Millisecond
	}
	if interval < collect.ShortestInterval || interval > longestInterval {
		return status.Errorf(codes.InvalidArgument, "interval_ms %d is out of range; write 100 to 60000",
			in.GetIntervalMs())
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
func (s *Server) send(out grpc.ServerStreamingServer[telemetryapi.Sample], snapshot *collect.Snapshot, keep filter,
	name string, missed uint64) error {
	m, err := s.message(snapshot, keep, name)
	if err != nil {
		return err
	}
	if missed > 0 {
		m = m.With(protowire.AppendVarint(protowire.AppendTag(nil, fieldMissed, protowire.VarintType), missed))
	}
	return out.SendMsg(m)
}

// message is a snapshot after the filter of that name. Only the newest is kept for other readers; a late one gets a
// new message.
func (s *Server) message(snapshot *collect.Snapshot, keep filter, name string) (*serve.Encoded, error) {
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
		s.made, s.seq = map[string]*serve.Encoded{}, snapshot.Seq
	}
	if snapshot.Seq == s.seq {
		s.made[name] = m
	}
	return m, nil
}

// fieldMissed is the number of Sample.missed. A message may be in parts, of which the last counts.
const fieldMissed = protowire.Number(2)

func encode(m *telemetryapi.Sample) (*serve.Encoded, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode sample %d: %v", m.GetSequence(), err)
	}
	return serve.NewEncoded(data), nil
}
