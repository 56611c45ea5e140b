// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"net"
	"sync"
)

// limited accepts while less than so many of its connections are open, and keeps no more than so many of one caller.
type limited struct {
	net.Listener
	of   func(net.Conn) Caller
	room chan struct{}
	// closed ends a wait for room.
	closed chan struct{}
	once   sync.Once

	each int
	mu   sync.Mutex
	open map[string]int // by caller
}

func limit(l net.Listener, most, each int, of func(net.Conn) Caller) *limited {
	return &limited{Listener: l, of: of, room: make(chan struct{}, most), closed: make(chan struct{}), each: each, open: map[string]int{}}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.room
			return nil, err
		}
		caller := l.of(c)
		if l.enter(caller.Name) {
			return &one{Conn: c, of: l, caller: caller}, nil
		}
		_ = c.Close() // nothing was written to it
	}
}

// enter counts a connection of a caller, if it may have one more.
func (l *limited) enter(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[name] >= l.each {
		return false
	}
	l.open[name]++
	return true
}

func (l *limited) leave(name string) {
	l.mu.Lock()
	if l.open[name]--; l.open[name] == 0 {
		delete(l.open, name)
	}
	l.mu.Unlock()
	<-l.room
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// one is a connection that takes room until it is closed.
type one struct {
	net.Conn
	of     *limited
	caller Caller
	once   sync.Once
}

// Close implements net.Conn.
func (c *one) Close() error {
	c.once.Do(func() { c.of.leave(c.caller.Name) })
	return c.Conn.Close()
}
