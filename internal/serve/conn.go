// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"sync"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

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

// Begin takes a request of the connection. Call the returned function when the request ended. ok is false if the peer, or
// all peers together, have too many.
func (c *Conn) Begin(k limit.Kind) (end func(), ok bool) {
	if !c.share.begin(c.id, k) {
		return nil, false
	}
	return sync.OnceFunc(func() { c.share.end(c.id, k) }), true
}

// Hold takes the n bytes of an answer that waits for its reader. Call the returned function when the answer was sent.
func (c *Conn) Hold(n int) (free func(), ok bool) {
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
