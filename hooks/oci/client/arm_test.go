// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

const creating = `{"id":"c1","status":"creating","pid":4711,"annotations":{"kerf.dev/grant":"n"}}`

// agent is a fake agent that answers the i-th connection with the i-th answer, and goes on with the last.
type agent struct {
	mu      sync.Mutex
	answers []func(net.Conn)
	asked   []wire.Request
}

func say(p wire.Response) func(net.Conn) {
	return func(c net.Conn) { _ = wire.WriteResponse(c, p) }
}

func write(s string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, s) }
}

// listen makes the socket in a folder with a short name.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf-hook")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func (a *agent) serve(t *testing.T, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			q, err := wire.ReadRequest(c)
			a.mu.Lock()
			if err == nil {
				a.asked = append(a.asked, q)
			}
			answer := a.answers[0]
			if len(a.answers) > 1 {
				a.answers = a.answers[1:]
			}
			a.mu.Unlock()
			answer(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

func TestActivate(t *testing.T) {
	ok := say(wire.Response{OK: true})
	retry := say(wire.Response{Retry: true, Message: "the driver is being probed", Version: "v2"})
	killed := func(net.Conn) {}
	tests := map[string]struct {
		// answers are the agent's; nil is none, while the hook's time ends.
		answers []func(net.Conn)
		// refused is part of the error, nothing where the program may run.
		refused string
		final   bool
		asked   int
	}{
		"yes":                 {answers: []func(net.Conn){ok}, asked: 1},
		"not ready, then yes": {answers: []func(net.Conn){retry, retry, ok}, asked: 3},
		"killed, then yes":    {answers: []func(net.Conn){killed, ok}, asked: 2},
		"half an answer":      {answers: []func(net.Conn){write("KRFH\x01\x00"), ok}, asked: 2},
		"no": {answers: []func(net.Conn){say(wire.Response{Message: "grant is for 3 GiB"})},
			refused: "grant is for 3 GiB", final: true, asked: 1},
		"no without reason": {answers: []func(net.Conn){say(wire.Response{})}, refused: "no reason given", final: true,
			asked: 1},
		// The last try ends with the time, and the error has the agent's last answer.
		"never ready": {answers: []func(net.Conn){retry, nil},
			refused: "waited 30s: kerf-agent (v2) is not ready: the driver is being probed", asked: 2},
		"other frames": {answers: []func(net.Conn){write("KRFH\x02\x00\x00\x00\x02{}")}, refused: "version 2",
			final: true, asked: 1},
		"something else listens": {answers: []func(net.Conn){write("HTTP/1.1 400 Bad Request\r\n\r\n")},
			refused: "malformed", final: true, asked: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, over := context.WithCancel(t.Context())
			defer over()
			a := &agent{answers: tc.answers}
			for i, answer := range a.answers {
				if answer == nil {
					a.answers[i] = func(net.Conn) { over() }
				}
			}
			path := socketPath(t)
			a.serve(t, listen(t, path))
			h := hook{dial: dial, version: "v1", firstPause: time.Millisecond}
			err := h.activate(ctx, Options{Socket: path, Amount: "gpu:1", Grant: "k-1", Wait: 30 * time.Second},
				strings.NewReader(creating))
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused) ||
				!strings.Contains(err.Error(), `"c1"`)):
				t.Errorf("error %v, want one that has %q and the container", err, tc.refused)
			case isFinal(err) != tc.final:
				t.Errorf("error %v is final: %t, want %t", err, !tc.final, tc.final)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if tc.asked > 0 && len(a.asked) != tc.asked || len(a.asked) == 0 {
				t.Errorf("asked %d times, want %d", len(a.asked), tc.asked)
			}
			for _, q := range a.asked {
				if want := (wire.Request{Container: "c1", PID: 4711, Amount: "gpu:1", Grant: "k-1",
					Note: "n", Version: "v1"}); q != want {
					t.Errorf("asked %+v, want %+v", q, want)
				}
			}
		})
	}
}

func TestActivateWaitsForAnAgentThatStarts(t *testing.T) {
	path := socketPath(t)
	a := &agent{answers: []func(net.Conn){say(wire.Response{OK: true})}}
	tried := make(chan struct{})
	var once sync.Once
	h := hook{firstPause: time.Millisecond, dial: func(ctx context.Context, path string) (net.Conn, error) {
		c, err := dial(ctx, path)
		if err != nil {
			once.Do(func() { close(tried) })
		}
		return c, err
	}}
	result := make(chan error, 1)
	go func() {
		result <- h.activate(t.Context(), Options{Socket: path, Wait: 30 * time.Second}, strings.NewReader(creating))
	}()
	<-tried // no agent was there
	stale := listen(t, path)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close() // a dead agent's socket refuses connections
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	a.serve(t, listen(t, path))
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestActivateGivesUpByItself(t *testing.T) {
	path := socketPath(t)
	h := hook{dial: dial, firstPause: time.Millisecond}
	// Its time counts from before it reads the state, so that it must be enough for that on any machine.
	err := h.activate(t.Context(), Options{Socket: path, Wait: time.Second}, strings.NewReader(creating))
	if err == nil || !strings.Contains(err.Error(), "waited 1s") || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "see why it does not run on this node") {
		t.Errorf("no one there: %v, want an error with the time and the socket", err)
	}
	// An agent that takes the question and hangs.
	release := make(chan struct{})
	a := &agent{answers: []func(net.Conn){func(net.Conn) { <-release }}}
	a.serve(t, listen(t, path))
	defer close(release)
	err = h.activate(t.Context(), Options{Socket: path, Wait: time.Second}, strings.NewReader(creating))
	if err == nil || !strings.Contains(err.Error(), "waited 1s") {
		t.Errorf("agent hangs: %v, want an error with the time", err)
	}
}

func TestActivateAsksNoAgentAboutABadState(t *testing.T) {
	h := hook{firstPause: time.Millisecond, dial: func(context.Context, string) (net.Conn, error) {
		t.Error("it connects")
		return nil, io.EOF
	}}
	err := h.activate(t.Context(), Options{Socket: "/s", Wait: time.Second},
		strings.NewReader(`{"id":"c","status":"running","pid":7}`))
	if !errors.Is(err, errState) {
		t.Errorf("error %v, want %v", err, errState)
	}
}

func TestActivateRefusesAListenerOfAnotherUser(t *testing.T) {
	h := hook{firstPause: time.Millisecond, dial: func(context.Context, string) (net.Conn, error) {
		return nil, errors.Join(refusal{errors.New("user 1000 listens")}, nil)
	}}
	err := h.activate(t.Context(), Options{Socket: "/s", Wait: 30 * time.Second}, strings.NewReader(creating))
	if !isFinal(err) || !strings.Contains(err.Error(), "user 1000") {
		t.Errorf("error %v, want a final one", err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
