// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// headerTime bounds how long a peer may take to send a request.
	headerTime = 3 * time.Second
	// answerTime bounds the time from the end of a request's header to the end of its answer.
	answerTime = 15 * time.Second
	// maxHeader bounds a request's header, in bytes.
	maxHeader = 8 << 10
	// stopTime is how long answers may take after a stop.
	stopTime = 3 * time.Second
)

// HTTP answers on l with h until ctx ends, and closes l. A connection has one answer. The error is nil when ctx ended
// it.
func HTTP(ctx context.Context, l *Listener, h http.Handler) error {
	s := &http.Server{
		Handler: limited(h), ReadHeaderTimeout: headerTime, WriteTimeout: answerTime, MaxHeaderBytes: maxHeader,
		ConnContext: withConn,
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // a peer's errors concern only the peer
	}
	s.SetKeepAlivesEnabled(false)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := s.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.Close()
	}
	if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// connKey is the key of a request's Conn in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if conn, ok := c.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return ctx
}

// ConnOf is the connection of a request, nil for one that no Listener took.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// limited answers a request with h if its peer may have one more. A request with a body is rejected: no answer depends
// on one.
func limited(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := ConnOf(r.Context())
		if conn == nil {
			http.Error(w, "the connection is not counted", http.StatusInternalServerError)
			return
		}
		if r.ContentLength != 0 {
			_ = conn.SetReadDeadline(time.Now()) // the server does not wait for the body
			http.Error(w, "the request has a body", http.StatusBadRequest)
			return
		}
		end, ok := conn.Begin(limit.Request)
		if !ok {
			busy(w, "too many requests are in flight")
			return
		}
		defer end()
		h.ServeHTTP(w, r)
	})
}

func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why+"; try again later", http.StatusServiceUnavailable)
}

// Conn is a connection that a Share took. It counts until it is closed.
type Conn struct {
	net.Conn
	share *Share
	id    limit.ConnID
	peer  string
	value any
	once  sync.Once
}

// Close ends the connection. It may be called more than once.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.share.close(c.id) })
	return err
}

// NetConn is the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Value is what the listener's Identify function returned for the connection.
func (c *Conn) Value() any { return c.value }

// Begin takes a request of the connection. Call the returned function when the request ended. ok is false if the peer,
// or all peers together, have too many.
func (c *Conn) Begin(k limit.Kind) (end func(), ok bool) {
	if !c.share.begin(c.id, k) {
		return nil, false
	}
	return sync.OnceFunc(func() { c.share.end(c.id, k) }), true
}

// Reserve takes the n bytes of an answer that waits for its reader. Call the returned function when the answer was
// sent.
func (c *Conn) Reserve(n int) (free func(), ok bool) {
	if !c.share.hold(c.id, int64(n)) {
		return nil, false
	}
	return sync.OnceFunc(func() { c.share.free(c.id, int64(n)) }), true
}

// Unwrap returns the connection that the kernel gave, of a Conn or of any other connection.
func Unwrap(c net.Conn) net.Conn {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return c
}

var errServerOnly = errors.New("peer credentials are for the server side")

// Identity is the process that connected a Unix socket, as the kernel noted it.
type Identity struct {
	PID int
	// Start is when it started, in clock ticks since boot. With PID it is never another process's.
	Start    uint64
	UID, GID uint32
}

// peerCredentials takes Conns alone, and identifies their peers if it should.
type peerCredentials struct{ identify bool }

// authInfo is what a call's context has of its connection.
type authInfo struct {
	credentials.CommonAuthInfo
	conn       *Conn
	identified bool
	identity   Identity
}

// AuthType implements credentials.AuthInfo.
func (authInfo) AuthType() string { return "unix-peer" }

// ServerHandshake implements credentials.TransportCredentials.
func (p peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := c.(*Conn)
	if !ok {
		return nil, nil, fmt.Errorf("connection of type %T is not counted: %w", c, sharing.ErrDenied)
	}
	info := authInfo{conn: conn, identified: p.identify}
	info.SecurityLevel = credentials.PrivacyAndIntegrity // the kernel's own memory
	if !p.identify {
		return conn, info, nil
	}
	unix, ok := conn.NetConn().(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("connection of type %T has no peer credentials: %w", conn.NetConn(),
			sharing.ErrDenied)
	}
	who, err := process.PeerOf(unix)
	if err != nil {
		return nil, nil, fmt.Errorf("peer of socket: %w", err)
	}
	defer who.Process.Close()
	info.identity = Identity{PID: who.PID, Start: who.Process.StartTime(), UID: who.UID, GID: who.GID}
	return conn, info, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

// Clone implements credentials.TransportCredentials.
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials.
func (peerCredentials) OverrideServerName(string) error { return nil }

// IdentityOf is the process at the other end of a call's connection. The error wraps sharing.ErrDenied.
func IdentityOf(ctx context.Context) (Identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}, fmt.Errorf("call without a peer: %w", sharing.ErrDenied)
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok || !info.identified {
		return Identity{}, fmt.Errorf("call without peer credentials: %w", sharing.ErrDenied)
	}
	return info.identity, nil
}
