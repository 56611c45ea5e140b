// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// dialLimit bounds the connecting; the socket is local.
	dialLimit = 2 * time.Second
	// startLimit bounds the registration and the configuration that follows it.
	startLimit = 10 * time.Second
	// startGrace is given to a registration whose connection ended, to find that out by itself.
	startGrace = 500 * time.Millisecond
	// closeLimit bounds the wait for the stub to say that its connection is closed.
	closeLimit = 5 * time.Second
)

// session is one connection to the container runtime.
type session struct {
	*run
	stub  stub.Stub
	trunk *watched
	// timeout is what the runtime gives a request.
	timeout atomic.Int64
	// blind is set, before anything else comes, where the runtime cannot tell what a guarded container is.
	blind said
	// edits is nil if the container runtime resolves CDI names.
	edits Edits
	// given up is true when the registration was given up.
	givenUp atomic.Bool

	mu           sync.Mutex
	ended        bool
	synchronised bool
}

// serve connects and serves until the connection or ctx ends. It tells whether the plugin was in service.
func (r *run) serve(ctx context.Context) (synchronised bool, err error) {
	dialer := net.Dialer{Timeout: dialLimit}
	conn, err := dialer.DialContext(ctx, "unix", r.Socket)
	if err != nil {
		if ctx.Err() == nil {
			r.say(unreachable(r.Socket, err))
		}
		return false, fmt.Errorf("connect to NRI: %w", err)
	}
	trunk := &watched{Conn: conn, gone: make(chan struct{})}
	defer trunk.Close()
	s := &session{run: r, trunk: trunk}
	s.timeout.Store(int64(stub.DefaultRequestTimeout))
	closed := make(chan struct{})
	var once sync.Once
	s.stub, err = stub.New(&handlers{s},
		stub.WithPluginName(pluginName), stub.WithPluginIdx(pluginIndex), stub.WithConnection(trunk),
		stub.WithLogger(stubLog{r.Log}), stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}),
		stub.WithOnClose(func() { once.Do(func() { close(closed) }) }))
	if err != nil {
		return false, fmt.Errorf("make the NRI plugin: %w", err)
	}
	if err := s.start(ctx); err != nil {
		s.end(fmt.Sprintf("the container runtime did not take the NRI plugin: %v; see its log", err))
		s.await(closed)
		return false, fmt.Errorf("register with NRI: %w", err)
	}
	s.tell("connected to NRI; the container runtime has not sent its containers yet", false)
	select {
	case <-closed:
	case <-ctx.Done():
		s.stub.Stop()
		s.await(closed)
		return s.end(""), ctx.Err()
	}
	return s.end("the container runtime closed the NRI connection; connecting again"),
		fmt.Errorf("the container runtime closed the connection: %w", sharing.ErrUnavailable)
}

// start registers the plugin. The stub waits without limit for the configuration that follows a registration, and
// locks meanwhile. If the connection ends in between, start delivers a configuration and refuses it.
func (s *session) start(ctx context.Context) error {
	started := make(chan error, 1)
	go func() { started <- s.stub.Start(ctx) }()
	timer := time.NewTimer(startLimit)
	defer timer.Stop()
	var err error
	gone := false
	select {
	case err := <-started:
		return err
	case <-s.trunk.gone:
		gone = true
		err = fmt.Errorf("the connection ended during the registration: %w", sharing.ErrUnavailable)
	case <-timer.C:
		err = fmt.Errorf("the registration is not done after %s: %w", startLimit, sharing.ErrUnavailable)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.givenUp.Store(true)
	_ = s.trunk.Close() // it may be closed already; what matters is err
	select {
	case own := <-started:
		if gone && own == nil {
			return nil // it was done, and the connection ended after it
		}
		return errors.Join(own, err)
	case <-time.After(startGrace):
	}
	if service, ok := s.stub.(interface {
		Configure(ctx context.Context, req *api.ConfigureRequest) (*api.ConfigureResponse, error)
	}); ok {
		_, _ = service.Configure(ctx, &api.ConfigureRequest{}) // Start returns what it returns
	}
	return errors.Join(<-started, err)
}

// await waits until the stub has closed its side.
func (s *session) await(closed <-chan struct{}) {
	select {
	case <-closed:
	case <-time.After(closeLimit):
		s.Log.Error("failed to close the connection to NRI in time", "after", closeLimit.String())
	}
}

// tell tells the condition while the session lasts. inService is true when the runtime's state is known.
func (s *session) tell(sentence string, inService bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.synchronised && !inService {
		return
	}
	s.synchronised = s.synchronised || inService
	s.say(sentence)
}

// end tells the last condition of the session, if it has one, and whether the plugin was in service.
func (s *session) end(sentence string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if sentence != "" {
		s.say(sentence)
	}
	return s.synchronised
}

// watched is a connection that tells when it has ended.
type watched struct {
	net.Conn
	once sync.Once
	gone chan struct{}
}

// over tells whether it has ended.
func (w *watched) over() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

// Read notes the end.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.once.Do(func() { close(w.gone) })
	}
	return n, err
}

// Close notes the end.
func (w *watched) Close() error {
	w.once.Do(func() { close(w.gone) })
	return w.Conn.Close()
}

// unreachable is the condition while the socket does not answer.
func unreachable(socket string, err error) string {
	const remedy = `turn NRI on in the container runtime (containerd's configuration: disable = false below [plugins."io.containerd.nri.v1.nri"]; on by default since containerd 2.0), restart it, and mount the directory of its socket into the agent`
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("there is no NRI socket at %q: %s", socket, remedy)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("the NRI socket %q may not be opened: run the agent as root, and let it connect where "+
			"SELinux or AppArmor forbids it", socket)
	}
	return fmt.Sprintf("no answer from the NRI socket %q (%v): the container runtime is starting, or NRI is off; "+
		"if this lasts, %s", socket, err, remedy)
}
