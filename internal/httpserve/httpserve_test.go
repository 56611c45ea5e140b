// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAnAnswerUnderWayEndsBeforeTheServer stops the server while it answers.
func TestAnAnswerUnderWayEndsBeforeTheServer(t *testing.T) {
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
	go func() { done <- Serve(ctx, l, h) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil || string(text) != "whole" {
		t.Errorf("%q, %v", text, err)
	}
	_ = r.Body.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r, err := c.Do(req); err == nil {
		_ = r.Body.Close()
		t.Error("it answers after its end")
	}
}

func TestAListenerThatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := Serve(t.Context(), l, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}

// TestEachConnectionHasItsOwnHandler asks over two of them.
func TestEachConnectionHasItsOwnHandler(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- ServeEach(ctx, l, func(c net.Conn) Caller {
			return Caller{"all", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.RemoteAddr().String()) })}
		})
	}()
	seen := map[string]bool{}
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c) // ends: there is one answer
		if err != nil || !strings.HasSuffix(string(text), c.LocalAddr().String()) {
			t.Errorf("%q, %v", text, err)
		}
		seen[c.LocalAddr().String()] = true
		_ = c.Close()
	}
	cancel()
	if err := <-done; err != nil || len(seen) != 2 {
		t.Error(seen, err)
	}
}

// TestManyThatSayNothing holds more connections than are served at once.
func TestManyThatSayNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var served atomic.Int32
	go func() {
		done <- ServeEach(ctx, l, func(c net.Conn) Caller {
			if _, ok := c.(*net.TCPConn); !ok {
				t.Errorf("who is at the other end of a %T?", c)
			}
			served.Add(1)
			return Caller{c.RemoteAddr().String(), http.NotFoundHandler()}
		})
	}()
	var d net.Dialer
	held := make([]net.Conn, mostAtOnce+20)
	for i := range held {
		if held[i], err = d.DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	for served.Load() < mostAtOnce {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if n := served.Load(); n != mostAtOnce {
		t.Errorf("%d are served at once, want %d", n, mostAtOnce)
	}
	for _, c := range held {
		_ = c.Close()
	}
	for served.Load() < int32(len(held)) { // those that waited have their turn
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestOneCallerWithMany lets one caller hold all that it may: what it has beyond is closed, and another is served.
func TestOneCallerWithMany(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var another atomic.Bool
	go func() {
		done <- ServeEach(ctx, l, func(net.Conn) Caller {
			if another.Load() {
				return Caller{"another", http.NotFoundHandler()}
			}
			return Caller{"greedy", http.NotFoundHandler()}
		})
	}()
	var d net.Dialer
	dial := func() net.Conn {
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn) string {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return ""
		}
		text, _ := io.ReadAll(c) // nothing, where it was closed
		return string(text)
	}
	var held []net.Conn
	for range mostOfOne {
		held = append(held, dial())
	}
	if text := ask(dial()); text != "" {
		t.Errorf("one more is answered: %q", text)
	}
	another.Store(true) // all before were judged, since that one was
	if text := ask(dial()); !strings.Contains(text, "404") {
		t.Errorf("another caller: %q", text)
	}
	if text := ask(held[0]); !strings.Contains(text, "404") {
		t.Errorf("one of those that it holds: %q", text)
	}
	for _, c := range held {
		_ = c.Close() // so that the server has nothing to wait for
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
