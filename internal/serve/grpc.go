// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

const (
	// shakeTime bounds how long a peer may take until its connection speaks HTTP/2.
	shakeTime = 3 * time.Second
	// idleTime is how long a connection may have no call.
	idleTime = 10 * time.Second
	// pingTime is how long a peer may be silent before a ping checks it. It may take pingWait to answer.
	pingTime, pingWait = 30 * time.Second, 10 * time.Second
	// pingLeast is the least time between two questions of a peer whether the server is there.
	pingLeast = 5 * time.Second
	// sendTime bounds how long a reader of a stream may take for one message.
	sendTime = 20 * time.Second
	// callTime bounds a call that is no stream, with the sending of its answer. The longest is a grant that creates a
	// MIG instance.
	callTime = 90 * time.Second
	// maxStreams bounds the calls of one connection, if the rules give no bound.
	maxStreams = 32
	// callBuffer is the size of the read and the write buffer of a connection, in bytes.
	callBuffer = 4 << 10
	// callWindow is how much a peer may send ahead of its reader, in bytes. 64 KiB is the least that gRPC takes as a
	// fixed value.
	callWindow = 64 << 10
)

// GRPCRules say what a gRPC server takes.
type GRPCRules struct {
	// MaxRequest bounds a request message, in bytes.
	MaxRequest int
	// Streams are the full names of the methods that answer with a stream.
	Streams []string
	// Identify makes IdentityOf known, from the kernel. Peers whose process cannot be identified are then rejected.
	Identify bool
	// Calls bounds the calls and streams of one connection. Further ones wait in the client. 0 means 32.
	Calls uint32
}

// GRPC are the options of a gRPC server that answers on Listeners. Others make its connections fail.
func GRPC(r GRPCRules) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(peerCredentials{identify: r.Identify}),
		grpc.InTapHandle(admission(r.Streams).admit),
		grpc.ChainStreamInterceptor(boundSends),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(r.MaxRequest),
		grpc.MaxConcurrentStreams(cmp.Or(r.Calls, maxStreams)),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.ConnectionTimeout(shakeTime),
		grpc.ReadBufferSize(callBuffer), grpc.WriteBufferSize(callBuffer),
		grpc.InitialWindowSize(callWindow), grpc.InitialConnWindowSize(callWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingLeast, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: pingTime,
			Timeout: pingWait}),
	}
}

// admission are the full names of the methods that answer with a stream.
type admission []string

// admit counts each call from the moment when its header has come until it ends, with what has been received of its
// message. It runs on the goroutine that reads the connection, so it must not wait.
func (a admission) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn := connOf(ctx)
	if conn == nil {
		return ctx, status.Error(codes.Internal, "the connection is not counted")
	}
	kind, what := limit.Request, "calls"
	if slices.Contains(a, info.FullMethodName) {
		kind, what = limit.Stream, "streams"
	}
	end, ok := conn.Begin(kind)
	if !ok {
		// Unavailable says that nothing took effect and that trying again helps.
		return ctx, status.Errorf(codes.Unavailable,
			"%s has too many %s in flight, or all users together have; try again later", conn.peer, what)
	}
	context.AfterFunc(ctx, end)
	if kind == limit.Request {
		late := time.AfterFunc(callTime, func() { _ = conn.Close() })
		context.AfterFunc(ctx, func() { late.Stop() })
	}
	return ctx, nil
}

// connOf is the connection of a call, nil for one that no Listener took.
func connOf(ctx context.Context) *Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.conn
		}
	}
	return nil
}

// boundSends closes the connection of a stream whose reader does not take a message within sendTime, and counts the
// bytes of the message meanwhile.
func boundSends(srv any, out grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	conn := connOf(out.Context())
	if conn == nil {
		return status.Error(codes.Internal, "the connection is not counted")
	}
	return h(srv, &boundStream{ServerStream: out, conn: conn, within: sendTime})
}

type boundStream struct {
	grpc.ServerStream
	conn   *Conn
	within time.Duration
}

// SendMsg implements grpc.ServerStream. A message that knows its size in bytes has a method Len.
func (s *boundStream) SendMsg(m any) error {
	if sized, ok := m.(interface{ Len() int }); ok {
		free, ok := s.conn.Reserve(sized.Len())
		if !ok {
			return status.Error(codes.ResourceExhausted, "too many messages wait for their readers")
		}
		defer free()
	}
	late := time.AfterFunc(s.within, func() { _ = s.conn.Close() })
	defer late.Stop()
	return s.ServerStream.SendMsg(m)
}
