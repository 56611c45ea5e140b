// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"net"
	"sync"
)

// limited accepts while less than so many of its connections are open. Who made one is still to be told: the
// connection below is at hand, which that of golang.org/x/net/netutil keeps to itself.
type limited struct {
	net.Listener
	room chan struct{}
	// closed ends a wait for room.
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, most int) *limited {
	return &limited{Listener: l, room: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &one{Conn: c, of: l}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// one is a connection that takes room until it is closed.
type one struct {
	net.Conn
	of   *limited
	once sync.Once
}

// Close implements net.Conn.
func (c *one) Close() error {
	c.once.Do(func() { <-c.of.room })
	return c.Conn.Close()
}
