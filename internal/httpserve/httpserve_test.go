// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

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
