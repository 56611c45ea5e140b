// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roomy are bounds that a test does not reach by accident.
func roomy() limit.Bounds {
	return limit.Bounds{Conns: 100, PeerConns: 100, Requests: 50, PeerRequests: 50, Streams: 20, PeerStreams: 20,
		Bytes: 1 << 20, PeerBytes: 1 << 20}
}

// site is an HTTP server on TCP.
type site struct {
	t     *testing.T
	share *Share
	addr  string
}

// newSite serves h until the test ends, under bounds that change changes.
func newSite(t *testing.T, change func(*limit.Bounds, *Rules), h http.Handler) site {
	t.Helper()
	b, rules := roomy(), Rules{}
	if change != nil {
		change(&b, &rules)
	}
	s := NewShare(limit.Share{Name: "web", Bounds: b})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- HTTP(ctx, s.Listen(l, rules), h) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return site{t, s, l.Addr().String()}
}

func (s site) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a request and returns the answer's status and text, 0 if the connection was closed.
func (s site) ask(c net.Conn, head string) (int, string) {
	s.t.Helper()
	if _, err := io.WriteString(c, head+"\r\n\r\n"); err != nil {
		return 0, ""
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

const get = "GET / HTTP/1.1\r\nHost: x"

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
}

// TestAnswerInProgressEndsBeforeServer stops the server while it answers.
func TestAnswerInProgressEndsBeforeServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		_, _ = io.WriteString(w, "whole")
	})
	done := make(chan error, 1)
	go func() { done <- HTTP(ctx, NewShare(limit.Share{Bounds: roomy()}).Listen(l, Rules{}), h) }()
	s := site{t: t, addr: l.Addr().String()}
	if code, body := s.ask(s.dial(), get); code != 200 || body != "whole" {
		t.Errorf("%d %q", code, body)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", s.addr); err == nil {
		_ = c.Close()
		t.Error("the server listens after its end")
	}
}

func TestListenerThatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	err = HTTP(t.Context(), NewShare(limit.Share{Bounds: roomy()}).Listen(l, Rules{}), http.NotFoundHandler())
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}

// TestOneAnswerPerConnection sends a second request on a connection.
func TestOneAnswerPerConnection(t *testing.T) {
	s := newSite(t, nil, text("once"))
	c := s.dial()
	if _, err := io.WriteString(c, get+"\r\n\r\n"+get+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(c)
	if n := strings.Count(string(all), "once"); n != 1 {
		t.Errorf("%d answers: %q", n, all)
	}
}

// TestIdentifiedPeer gives each connection what Identify returned for it.
func TestIdentifiedPeer(t *testing.T) {
	var n atomic.Int32
	s := newSite(t, func(_ *limit.Bounds, r *Rules) {
		r.Identify = func(c net.Conn) (string, any, error) {
			if _, ok := c.(*net.TCPConn); !ok {
				t.Errorf("a connection of type %T is to be identified", c)
			}
			if n.Add(1) == 2 {
				return "", nil, net.ErrClosed
			}
			return "p", c.RemoteAddr().String(), nil
		}
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, ConnOf(r.Context()).Value().(string))
	}))
	first, second := s.dial(), s.dial()
	if code, body := s.ask(first, get); code != 200 || body != first.LocalAddr().String() {
		t.Errorf("%d %q", code, body)
	}
	if code, body := s.ask(second, get); code != 0 {
		t.Errorf("a peer that cannot be identified gets %d %q", code, body)
	}
}

// TestRequestsInFlight holds as many requests as a peer may have; the next is rejected with the reason.
func TestRequestsInFlight(t *testing.T) {
	began, let := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(b *limit.Bounds, _ *Rules) { b.PeerRequests = 2 },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			began <- struct{}{}
			<-let
		}))
	ended := make(chan int, 2)
	for range 2 {
		c := s.dial()
		go func() { code, _ := s.ask(c, get); ended <- code }()
		<-began
	}
	if code, body := s.ask(s.dial(), get); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "too many requests") {
		t.Errorf("one more: %d %q", code, body)
	}
	if now, rejected := s.share.Stats(); now.Requests != 2 || rejected.Requests != 1 {
		t.Errorf("%+v, rejected %+v", now, rejected)
	}
	close(let)
	for range 2 {
		if code := <-ended; code != 200 {
			t.Errorf("a request in flight ended with %d", code)
		}
	}
	go func() { <-began }()
	if code, _ := s.ask(s.dial(), get); code != 200 {
		t.Errorf("after they ended: %d", code)
	}
}

// TestHandlerOutlivesItsPeer closes connections while their requests are in flight: the requests still count.
func TestHandlerOutlivesItsPeer(t *testing.T) {
	began, let := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(b *limit.Bounds, _ *Rules) { b.PeerRequests = 1 },
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			<-r.Context().Done()
			<-let
		}))
	c := s.dial()
	if _, err := io.WriteString(c, get+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	_ = c.Close()
	if code, _ := s.ask(s.dial(), get); code != http.StatusServiceUnavailable {
		t.Errorf("%d while the handler of a peer that left still runs", code)
	}
	close(let)
}

// TestBodyIsRejected sends a header that announces a body, and no body.
func TestBodyIsRejected(t *testing.T) {
	s := newSite(t, nil, text("never"))
	c := s.dial()
	if code, body := s.ask(c, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000"); code != http.StatusBadRequest {
		t.Errorf("%d %q", code, body)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection stays open for the body")
	}
}
