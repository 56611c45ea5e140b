// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeclient_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T, dir string) *nodeclient.Client {
	t.Helper()
	c, err := nodeclient.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// stale leaves a socket file in dir on which no process listens, as a killed agent does.
func stale(t *testing.T, dir string) {
	t.Helper()
	l, err := net.Listen("unix", nodeclient.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
}

func TestNodeReturnsThePicture(t *testing.T) {
	dir := t.TempDir()
	s := (&fakenode.Server{}).Start(t, dir)
	s.Show(&nodeapi.GetNodeResponse{Ready: true, DriverVersion: "615.71.09"})
	got, err := client(t, dir).Node(t.Context())
	if err != nil || got.GetDriverVersion() != "615.71.09" {
		t.Fatalf("got %v, %v", got, err)
	}
}

// Each way in which the agent can be missing has its own kind and names its remedy.
func TestMissingAgent(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, dir string) string
		kind    error
		text    string
	}{
		"no directory": {func(_ *testing.T, dir string) string { return filepath.Join(dir, "no") },
			nodeclient.ErrNoAgent, "start it with kerf-agent --run-dir"},
		"no socket": {func(_ *testing.T, dir string) string { return dir }, nodeclient.ErrNoAgent,
			"start it with kerf-agent --run-dir"},
		"no one listens": {func(t *testing.T, dir string) string { stale(t, dir); return dir },
			nodeclient.ErrRestarting, "does not listen"},
		"path too long": {func(_ *testing.T, dir string) string { return dir + "/" + strings.Repeat("d", 120) },
			sharing.ErrInvalid, "use a shorter --run-dir"},
		"directory is a file": {func(t *testing.T, dir string) string {
			f := filepath.Join(dir, "f")
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return f
		}, nodeclient.ErrNoAgent, "no kerf-agent"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := tt.prepare(t, t.TempDir())
			_, err := client(t, dir).Node(t.Context())
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Node: %v, want kind %v and %q", err, tt.kind, tt.text)
			}
			_, err = nodeclient.Await(t.Context(), dir, 0)
			if !errors.Is(err, tt.kind) {
				t.Errorf("Await: %v, want kind %v", err, tt.kind)
			}
		})
	}
}

// What the agent says is passed on unchanged, with its word of the vocabulary.
func TestRefusalsKeepTheirTextAndGetTheirKind(t *testing.T) {
	tests := map[codes.Code]error{
		codes.InvalidArgument: sharing.ErrInvalid, codes.ResourceExhausted: sharing.ErrExhausted,
		codes.AlreadyExists: sharing.ErrConflict, codes.Unavailable: nodeclient.ErrNotReady,
		codes.FailedPrecondition: sharing.ErrUnsupported, codes.PermissionDenied: sharing.ErrDenied,
		codes.NotFound: sharing.ErrNotFound, codes.Aborted: sharing.ErrStale, codes.Internal: sharing.ErrUnavailable,
		codes.DataLoss: sharing.ErrLost,
	}
	for code, kind := range tests {
		t.Run(code.String(), func(t *testing.T) {
			dir := t.TempDir()
			(&fakenode.Server{OnReserve: func(*nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
				return nil, status.Error(code, "GPU 0 has 2GiB free of the 10GiB requested")
			}}).Start(t, dir)
			_, err := client(t, dir).Reserve(t.Context(), &nodeapi.ReserveRequest{})
			if !errors.Is(err, kind) || err.Error() != "GPU 0 has 2GiB free of the 10GiB requested" {
				t.Fatalf("got %v (%T), want kind %v", err, err, kind)
			}
			if errors.Is(err, nodeclient.ErrBroken) || errors.Is(err, nodeclient.ErrRestarting) {
				t.Errorf("%v: an answer must not look like a missing agent", err)
			}
		})
	}
}

// A call that broke off may have taken effect; it must not look like one that never reached the agent.
func TestAgentKilledInTheMiddleOfACall(t *testing.T) {
	dir := t.TempDir()
	leave := make(chan struct{})
	s := &fakenode.Server{}
	s.OnReserve = func(*nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
		go s.Kill()
		<-leave
		return &nodeapi.ReserveResponse{}, nil
	}
	s.Start(t, dir)
	_, err := client(t, dir).Reserve(t.Context(), &nodeapi.ReserveRequest{})
	close(leave)
	if !errors.Is(err, nodeclient.ErrBroken) {
		t.Fatalf("got %v, want ErrBroken", err)
	}
}

func TestAwaitWaitsForARestart(t *testing.T) {
	dir := t.TempDir()
	stale(t, dir)
	type answer struct {
		waited bool
		err    error
	}
	got := make(chan answer, 1)
	go func() {
		waited, err := nodeclient.Await(t.Context(), dir, time.Minute)
		got <- answer{waited, err}
	}()
	select {
	case a := <-got:
		t.Fatalf("returned before anybody listened: %+v", a)
	case <-time.After(300 * time.Millisecond):
	}
	(&fakenode.Server{}).Start(t, dir)
	if a := <-got; a.err != nil {
		t.Fatalf("got %+v", a)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	stale(t, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	if _, err := nodeclient.Await(ctx, dir, time.Minute); !errors.Is(err, why) {
		t.Fatalf("got %v, want the cause", err)
	}
}

func TestFollowSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	first := (&fakenode.Server{}).Start(t, dir)
	first.Show(&nodeapi.GetNodeResponse{AgentVersion: "one"})
	var versions []string
	away := 0
	done := errors.New("done")
	err := nodeclient.WatchReconnecting(t.Context(), dir, time.Second, func(p *nodeapi.GetNodeResponse) error {
		versions = append(versions, p.GetAgentVersion())
		if p.GetAgentVersion() == "one" {
			go first.Kill()
			return nil
		}
		return done
	}, func(err error) error {
		away++
		if away == 1 {
			second := &fakenode.Server{}
			second.Start(t, dir)
			second.Show(&nodeapi.GetNodeResponse{AgentVersion: "two"})
		}
		if !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("away with %v, want ErrUnavailable", err)
		}
		return nil
	})
	if !errors.Is(err, done) || versions[len(versions)-1] != "two" {
		t.Fatalf("got %v, pictures %v", err, versions)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	err := client(t, dir).Watch(ctx, 100*time.Millisecond,
		func(*nodeapi.GetNodeResponse) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
}
