// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

// answers is a gRPC service whose calls begin, and end when the test lets them.
type answers struct {
	grpc_health_v1.UnimplementedHealthServer
	began, let chan struct{}
	who        func(context.Context)
}

func (a *answers) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse,
	error) {
	if a.who != nil {
		a.who(ctx)
		return &grpc_health_v1.HealthCheckResponse{}, nil
	}
	a.began <- struct{}{}
	<-a.let
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

// Watch sends one message and waits for the end of the stream.
func (a *answers) Watch(_ *grpc_health_v1.HealthCheckRequest,
	out grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	if err := out.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
		return err
	}
	<-out.Context().Done()
	return nil
}

type callable struct {
	*answers
	grpc_health_v1.HealthClient
	share *Share
	path  string
}

// newCallable serves answers on a Unix socket until the test ends.
func newCallable(t *testing.T, b limit.Bounds, who func(context.Context)) callable {
	t.Helper()
	c := callable{answers: &answers{began: make(chan struct{}), let: make(chan struct{}), who: who},
		share: NewShare(limit.Share{Bounds: b})}
	c.path = filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(GRPC(GRPCRules{MaxRequest: 1 << 10,
		Streams: []string{grpc_health_v1.Health_Watch_FullMethodName}, Identify: true})...)
	grpc_health_v1.RegisterHealthServer(g, c.answers)
	done := make(chan error, 1)
	go func() { done <- g.Serve(c.share.Listen(inner, Rules{})) }()
	conn, err := grpc.NewClient("unix:"+c.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c.HealthClient = grpc_health_v1.NewHealthClient(conn)
	return c
}

func (c callable) check(ctx context.Context) error {
	_, err := c.HealthClient.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// TestCallsInFlight has as many calls in flight as a peer may have; the next is rejected, and says that it may try
// again.
func TestCallsInFlight(t *testing.T) {
	b := roomy()
	b.PeerRequests = 2
	c := newCallable(t, b, nil)
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- c.check(t.Context()) }()
		<-c.began
	}
	if err := c.check(t.Context()); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "too many calls in flight") {
		t.Errorf("one more: %v", err)
	}
	close(c.let)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for { // a call counts until the server has noticed its end, a moment after its answer
		now, _ := c.share.Stats()
		if now.Requests == 0 {
			break
		}
	}
	go func() { <-c.began }()
	if err := c.check(t.Context()); err != nil {
		t.Errorf("after they ended: %v", err)
	}
}

// TestStreamsInFlight has as many streams open as a peer may have. Other calls are still taken, and a stream that ends
// gives its place to the next.
func TestStreamsInFlight(t *testing.T) {
	b := roomy()
	b.PeerStreams = 2
	c := newCallable(t, b, func(context.Context) {})
	open := func(ctx context.Context) error {
		s, err := c.HealthClient.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		if err := open(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t.Context()); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "too many streams") {
		t.Errorf("one more: %v", err)
	}
	if err := c.check(t.Context()); err != nil {
		t.Errorf("another call: %v", err)
	}
	cancel()
	for {
		if now, _ := c.share.Stats(); now.Streams == 0 {
			break
		}
	}
	if err := open(t.Context()); err != nil {
		t.Errorf("after they ended: %v", err)
	}
}

// TestIdentity is the kernel's word of this process.
func TestIdentity(t *testing.T) {
	var got Identity
	var failed error
	c := newCallable(t, roomy(), func(ctx context.Context) { got, failed = IdentityOf(ctx) })
	if err := c.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if failed != nil || got.PID != os.Getpid() || got.UID != uint32(os.Geteuid()) || got.GID != uint32(os.Getegid()) ||
		got.Start == 0 {
		t.Errorf("%+v, %v", got, failed)
	}
	if _, err := IdentityOf(t.Context()); err == nil {
		t.Error("a call without a connection has an identity")
	}
}

// TestLargeRequest sends more than a request may have.
func TestLargeRequest(t *testing.T) {
	c := newCallable(t, roomy(), func(context.Context) {})
	_, err := c.HealthClient.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", 2<<10)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

// TestUncountedConnections fail: no server with these options answers past a Share.
func TestUncountedConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(GRPC(GRPCRules{MaxRequest: 1 << 10})...)
	grpc_health_v1.RegisterHealthServer(g, &answers{who: func(context.Context) { t.Error("it is answered") }})
	done := make(chan error, 1)
	go func() { done <- g.Serve(inner) }()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	g.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSizedMessages counts the bytes of messages that know their size.
func TestSizedMessages(t *testing.T) {
	b := roomy()
	b.Bytes, b.PeerBytes = 10, 10
	s := NewShare(limit.Share{Bounds: b})
	near, far := net.Pipe()
	defer far.Close()
	conn, _ := s.admit(near, "p", nil)
	defer conn.Close()
	sent := 0
	out := &boundStream{ServerStream: sink{send: func(any) error {
		sent++
		if now, _ := s.Stats(); now.Bytes != 7 {
			t.Errorf("%d bytes are held while 7 are sent", now.Bytes)
		}
		return nil
	}}, conn: conn, within: time.Hour}
	if err := out.SendMsg(sized(7)); err != nil || sent != 1 {
		t.Error(err)
	}
	free, ok := conn.Reserve(6)
	if !ok {
		t.Fatal("the bytes of a message that was sent are still held")
	}
	if err := out.SendMsg(sized(7)); status.Code(err) != codes.ResourceExhausted || sent != 1 {
		t.Errorf("%v after %d messages", err, sent)
	}
	free()
}

type sized int

func (s sized) Len() int { return int(s) }

// sink is a stream that hands on what is sent.
type sink struct {
	grpc.ServerStream
	send func(any) error
}

func (s sink) SendMsg(m any) error { return s.send(m) }

// TestReaderThatDoesNotRead loses its connection.
func TestReaderThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShare(limit.Share{Bounds: roomy()})
		near, far := net.Pipe()
		conn, _ := s.admit(near, "p", nil)
		out := &boundStream{conn: conn, within: sendTime, ServerStream: sink{send: func(any) error {
			_, err := io.ReadAll(far) // until the connection is closed
			return err
		}}}
		if err := out.SendMsg(sized(7)); err != nil {
			t.Error(err)
		}
		synctest.Wait() // closing the connection ends the read first, and the count after it
		if now, _ := s.Stats(); now != (limit.Totals{}) {
			t.Errorf("%+v", now)
		}
	})
}
