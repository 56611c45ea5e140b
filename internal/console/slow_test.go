// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// slow is a viewer who reads nothing of the answer until a channel is closed.
type slow struct {
	*httptest.ResponseRecorder

	until    <-chan struct{}
	deadline time.Time
}

func (s *slow) Write(b []byte) (int, error) {
	<-s.until
	return s.ResponseRecorder.Write(b)
}

func (s *slow) SetWriteDeadline(at time.Time) error {
	s.deadline = at
	return nil
}

func request(t *testing.T, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("User", "admin")
	return r
}

// Viewers who read their answer slowly delay no other one, and their write ends.
func TestSlowViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/api/advice?pod=mine-waits"
		h, until, viewers := filled(still{}).Handler(), make(chan struct{}), make([]slow, 4)
		for i := range viewers {
			viewers[i] = slow{ResponseRecorder: httptest.NewRecorder(), until: until}
			go h.ServeHTTP(&viewers[i], request(t, path))
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, request(t, path)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "changes") {
			t.Errorf("another viewer gets %d %s", w.Code, w.Body)
		}
		close(until)
		synctest.Wait()
		for i := range viewers {
			if left := time.Until(viewers[i].deadline); left != 30*time.Second {
				t.Errorf("viewer %d may write for %v", i, left)
			}
		}
	})
}

// stuck is a source whose Prometheus does not answer, and that plans for longer than a request may be read.
type stuck struct{ still }

func (stuck) Usage(ctx context.Context, _ time.Duration, _ []string) ([]usage.Part, config.Prices, error) {
	<-ctx.Done()
	return nil, config.Prices{}, ctx.Err()
}

func (stuck) Plan(ctx context.Context, _ config.Config, _ []config.File) (any, error) {
	select {
	case <-time.After(30 * time.Second):
		return "the plan", nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A viewer who waited for too long gets a reason.
func TestNoAnswerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, all := filled(stuck{}).Handler(), make([]*httptest.ResponseRecorder, 20)
		var g sync.WaitGroup
		for i := range all {
			all[i] = httptest.NewRecorder()
			g.Go(func() { h.ServeHTTP(all[i], request(t, "/api/teams")) })
		}
		g.Wait()
		for i, w := range all {
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "try again later") {
				t.Errorf("viewer %d gets %d %q", i, w.Code, w.Body)
			}
		}
	})
}

// pipes are connections without a network, so that their deadlines follow the clock of the test.
type pipes struct {
	context.Context

	made chan net.Conn
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.Done():
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.made <- there
	return here, nil
}

// An answer may take longer than the request may be read: the server ends the read deadline with the body.
func TestLongAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := pipes{ctx, make(chan net.Conn)}
		server := &http.Server{Handler: filled(stuck{}).Handler(), ReadHeaderTimeout: time.Second}
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		transport := &http.Transport{DialContext: l.dial}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://console/api/config", strings.NewReader(
			`{"text":"apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: default\n"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User", "admin")
		r.Header.Set("Content-Type", "application/json")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "the plan") || err != nil {
			t.Errorf("%s: %s: %v", resp.Status, text, err)
		}
		_ = resp.Body.Close() // It is read.
		transport.CloseIdleConnections()
		cancel()
		_ = server.Close() // The listener has ended.
		<-done
	})
}

// A stream whose viewer has no rights is rejected, so that the browser does not try for ever.
func TestStreamWithoutRights(t *testing.T) {
	_, server := started(t)
	for user, want := range map[string]int{"expired": http.StatusUnauthorized,
		"unknown": http.StatusServiceUnavailable} {
		for _, path := range []string{"/api/stream", "/api/me"} {
			if code, text, _ := ask(t, server, http.MethodGet, path, user, ""); code != want {
				t.Errorf("%s of user %s: %d %s", path, user, code, text)
			}
		}
	}
}

// Events need a right in addition to that of the namespace's pods.
func TestEvents(t *testing.T) {
	_, server := started(t)
	for user, want := range map[string]int{"mine": http.StatusOK, "blind": http.StatusForbidden} {
		path := "/api/events?pod=x&namespace=" + user
		if code, text, _ := ask(t, server, http.MethodGet, path, user, ""); code != want {
			t.Errorf("user %s: %d %s", user, code, text)
		}
	}
}
