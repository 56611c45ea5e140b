// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type armer func(context.Context, sharing.HookCall) error

func (a armer) ActivateContainer(ctx context.Context, c sharing.HookCall) error { return a(ctx, c) }

// buffer is a log that the server writes and the test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type running struct {
	path string
	log  *buffer
	// stop ends the server and returns what Serve returned.
	stop func() error
}

func start(t *testing.T, a Activator, change func(*Server)) running {
	t.Helper()
	return startOn(t, a, func(l net.Listener) net.Listener { return l }, change)
}

// startOn is start with another listener around that of the socket.
func startOn(t *testing.T, a Activator, around func(net.Listener) net.Listener, change func(*Server)) running {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf-oci")
	if err != nil {
		t.Fatal(err)
	}
	r := running{path: filepath.Join(dir, "s"), log: &buffer{}}
	l, err := net.Listen("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(a, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), "v2")
	// The user that runs the tests counts as root, except in the test about it.
	s.peer = func(net.Conn) (int, uint32, error) { return os.Getpid(), 0, nil }
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, around(l)) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
		os.RemoveAll(dir)
	})
	return r
}

func (r running) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (r running) ask(t *testing.T, q wire.Request) wire.Response {
	t.Helper()
	c := r.dial(t)
	defer c.Close()
	if err := wire.WriteRequest(c, q); err != nil {
		t.Fatal(err)
	}
	p, err := wire.ReadResponse(c)
	if err != nil {
		t.Fatal(err)
	}
	if p.Version != "v2" {
		t.Errorf("answer of version %q, want the agent's", p.Version)
	}
	return p
}

func TestAnswers(t *testing.T) {
	tests := map[string]struct {
		err       error
		ok, retry bool
		message   string
		log       string
	}{
		"armed": {ok: true, log: "activated grant of container"},
		"not ready": {err: fmt.Errorf("the driver does not answer: %w", sharing.ErrUnavailable), retry: true,
			message: "the driver does not answer", log: "postponed activation of container"},
		"out of time": {err: fmt.Errorf("probe: %w", context.DeadlineExceeded), retry: true, message: "probe",
			log: "postponed activation of container"},
		"stopping": {err: context.Canceled, retry: true, message: "canceled", log: "postponed activation of container"},
		"no grant": {err: fmt.Errorf("no grant: %w", sharing.ErrNotFound), message: "no grant",
			log: "rejected container"},
		"other ask": {err: sharing.Invalid("request", "gpu:2\n", "", "is not the grant's"), message: `"gpu:2\n"`,
			log: "rejected container"},
		"no sentinel": {err: errors.New("odd"), message: "odd", log: "rejected container"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got sharing.HookCall
			r := start(t, armer(func(ctx context.Context, c sharing.HookCall) error {
				got = c
				if d, ok := ctx.Deadline(); !ok || time.Until(d) > wire.HookAnswer {
					t.Errorf("deadline %v (%t), want one within %s", d, ok, wire.HookAnswer)
				}
				return tc.err
			}), nil)
			p := r.ask(t, wire.Request{Container: "c1\nx", PID: 4711, Amount: "gpu:1", Grant: "k-1", Note: "n",
				Version: "v1"})
			if p.OK != tc.ok || p.Retry != tc.retry || !strings.Contains(p.Message, tc.message) {
				t.Errorf("answer %+v, want ok %t, retry %t, message with %q", p, tc.ok, tc.retry, tc.message)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if want := (sharing.HookCall{ContainerID: "c1\nx", PID: 4711, Amount: "gpu:1", Grant: "k-1",
				Note: "n"}); got != want {
				t.Errorf("call %+v, want %+v", got, want)
			}
			if log := r.log.String(); !strings.Contains(log, tc.log) || !strings.Contains(log, `container="c1\nx"`) ||
				strings.Count(log, "\n") != 1 {
				t.Errorf("log %q, want one line with %q and the container quoted", log, tc.log)
			}
		})
	}
}

func TestOnlyRootIsAnswered(t *testing.T) {
	calls := 0
	a := armer(func(context.Context, sharing.HookCall) error { calls++; return nil })
	for name, peer := range map[string]func(net.Conn) (int, uint32, error){
		"another user": func(net.Conn) (int, uint32, error) { return 7, 1000, nil },
		"unknown":      func(net.Conn) (int, uint32, error) { return 0, 0, sharing.ErrDenied },
		"no unix socket": func(net.Conn) (int, uint32, error) {
			c, _ := net.Pipe()
			defer c.Close()
			return peerOf(c)
		},
	} {
		r := start(t, a, func(s *Server) { s.peer = peer })
		if p := r.ask(t, wire.Request{Container: "c", PID: 7}); p.OK || p.Retry ||
			!strings.Contains(p.Message, sharing.ErrDenied.Error()) {
			t.Errorf("%s: answer %+v, want a final refusal", name, p)
		}
		_ = r.stop()
		if !strings.Contains(r.log.String(), "rejected hook") {
			t.Errorf("%s: log %q does not tell", name, r.log)
		}
	}
	if calls > 0 {
		t.Errorf("the armer was asked %d times", calls)
	}
}

func TestKernelTellsThePeer(t *testing.T) {
	a := armer(func(context.Context, sharing.HookCall) error { return nil })
	r := start(t, a, func(s *Server) { s.peer = peerOf })
	p := r.ask(t, wire.Request{Container: "c", PID: 7})
	if root := os.Geteuid() == 0; p.OK != root {
		t.Errorf("answer %+v to user %d", p, os.Geteuid())
	}
}

func TestBadQuestions(t *testing.T) {
	a := armer(func(_ context.Context, c sharing.HookCall) error { t.Errorf("asked %+v", c); return nil })
	// What follows has its whole question in the socket long before its time ends, also on a machine that is busy.
	r := start(t, a, func(s *Server) { s.talkTime = 2 * time.Second })
	asked := map[string]net.Conn{}
	for name, in := range map[string]string{
		"other protocol": "GET / HTTP/1.1\r\n\r\n",
		"other version":  "KRFH\x02\x00\x00\x00\x02{}",
		"no container":   "KRFH\x01\x00\x00\x00\x09{\"pid\":7}",
		"pid 1":          "KRFH\x01\x00\x00\x00\x19{\"container\":\"c\",\"pid\":1}",
		"says nothing":   "",
		"half":           "KRFH\x01\x00",
	} {
		c := r.dial(t)
		if _, err := io.WriteString(c, in); err != nil {
			t.Fatal(err)
		}
		asked[name] = c
	}
	for name, c := range asked {
		if p, err := wire.ReadResponse(c); err != nil || p.OK || p.Retry || p.Message == "" {
			t.Errorf("%s: answer %+v (%v), want a final refusal with a reason", name, p, err)
		}
	}
	// One that goes away holds nothing up.
	c := r.dial(t)
	c.Close()
}

func TestBoundedInTimeAndNumber(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	two := make(chan struct{})
	meet := sync.OnceFunc(func() { close(two) })
	a := armer(func(ctx context.Context, _ sharing.HookCall) error {
		mu.Lock()
		now++
		if most = max(most, now); now == 2 {
			meet()
		}
		mu.Unlock()
		// hangs as long as it may, and the first one until there is another, however late that gets its turn
		<-ctx.Done()
		select {
		case <-two:
		case <-time.After(time.Minute):
		}
		mu.Lock()
		now--
		mu.Unlock()
		return ctx.Err()
	})
	three := serve.NewShare(limit.Share{Bounds: limit.Bounds{Conns: 3, PeerConns: 3}})
	around := func(l net.Listener) net.Listener { return three.Listen(l, serve.Rules{Wait: true}) }
	r := startOn(t, a, around, func(s *Server) { s.activateTime = 20 * time.Millisecond })
	var hooks sync.WaitGroup
	for range 12 {
		hooks.Go(func() {
			if p := r.ask(t, wire.Request{Container: "c", PID: 7}); p.OK || !p.Retry {
				t.Errorf("answer %+v, want retry", p)
			}
		})
	}
	hooks.Wait()
	if most > 3 || most < 2 {
		t.Errorf("%d at once, want up to 3", most)
	}
}

func TestStopAnswersWhoWaits(t *testing.T) {
	asked := make(chan struct{})
	r := start(t, armer(func(ctx context.Context, _ sharing.HookCall) error {
		close(asked)
		<-ctx.Done()
		return fmt.Errorf("activate: %w", ctx.Err())
	}), nil)
	answer := make(chan wire.Response, 1)
	go func() { answer <- r.ask(t, wire.Request{Container: "c", PID: 7}) }()
	<-asked
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if p := <-answer; p.OK || !p.Retry {
		t.Errorf("answer %+v, want retry: the next agent activates it", p)
	}
	if _, err := net.Dial("unix", r.path); err == nil {
		t.Error("the socket still takes connections")
	}
}

// flaky fails some times before it accepts.
type flaky struct {
	net.Listener
	fails int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.fails > 0 {
		f.fails--
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

func TestAcceptFails(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	s := NewServer(armer(func(context.Context, sharing.HookCall) error { return nil }),
		slog.New(slog.NewTextHandler(log, nil)), "v2")
	s.peer = func(net.Conn) (int, uint32, error) { return 2, 0, nil }
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), &flaky{inner, 2}) }()
	r := running{path: inner.Addr().String()}
	if p := r.ask(t, wire.Request{Container: "c", PID: 7}); !p.OK {
		t.Errorf("answer %+v after errors of accept, want ok", p)
	}
	inner.Close()
	if err := <-done; !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("listener closed by another: %v, want an error", err)
	}
	if n := strings.Count(log.String(), "failed to accept connections of hooks"); n != 2 {
		t.Errorf("%d lines of errors, want 2", n)
	}
}
